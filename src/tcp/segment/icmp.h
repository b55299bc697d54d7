// ICMP about our own segments (RFC 792, RFC 1191): what could not be delivered, and why.
#pragma once

#include <optional>

#include "tcp/segment/address.h"
#include "tcp/segment/ipv4.h"
#include "tcp/segment/sequence.h"

namespace offpath::tcp {

struct IcmpUnreachable {
  std::uint8_t code = 0;
  std::uint16_t mtu = 0;  // of `fragmentation_needed`; 0: a router that does not say
  FlowKey key;            // of the segment that did not arrive
  Sequence sequence;
};
inline constexpr std::uint8_t icmp_unreachable = 3;  // the type; the codes:
inline constexpr std::uint8_t icmp_protocol_unreachable = 2, icmp_port_unreachable = 3, icmp_fragmentation_needed = 4;

// "Destination unreachable" that quotes a TCP segment of `self`; nothing for any other message. `self` is where the
// ICMP went.
[[nodiscard]] std::optional<IcmpUnreachable> read_icmp_unreachable(Bytes bytes, Ipv4Address self) noexcept;

}  // namespace offpath::tcp
