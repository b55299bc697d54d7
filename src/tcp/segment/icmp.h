// ICMP "destination unreachable" about segments that this stack sent (RFC 792, RFC 1191).
#pragma once

#include <optional>

#include "tcp/segment/address.h"
#include "tcp/segment/ipv4.h"
#include "tcp/segment/sequence.h"

namespace offpath::tcp {

struct IcmpUnreachable {
  std::uint8_t code = 0;
  std::uint16_t mtu = 0;  // with `fragmentation_needed`; 0: the router gave none
  FlowKey key;            // the flow of the undelivered segment
  Sequence sequence;
};
inline constexpr std::uint8_t icmp_unreachable = 3;  // ICMP type; codes:
inline constexpr std::uint8_t icmp_protocol_unreachable = 2, icmp_port_unreachable = 3, icmp_fragmentation_needed = 4;

// Reads "destination unreachable" that quotes a TCP segment of `self`; nullopt for any other message. `self` is the
// ICMP datagram's target.
[[nodiscard]] std::optional<IcmpUnreachable> read_icmp_unreachable(Bytes bytes, Ipv4Address self) noexcept;

}  // namespace offpath::tcp
