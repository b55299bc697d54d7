// ICMP and ICMPv6 messages about segments that this stack sent and that did not arrive (RFC 792, 1191; RFC 4443, 8201).
#pragma once

#include <optional>

#include "tcp/segment/address.h"
#include "tcp/segment/ip_packet.h"
#include "tcp/segment/sequence.h"

namespace offpath::tcp {

struct IcmpUnreachable {
  enum class Why : std::uint8_t {
    unreachable,
    refused,  // there is no such port, or no TCP
    too_big,  // for the next link
  };
  Why why = Why::unreachable;
  std::uint16_t mtu = 0;  // of too_big; 0: the router gave none
  FlowKey key;            // the flow of the undelivered segment
  Sequence sequence;
};
inline constexpr std::uint8_t icmp_unreachable = 3;           // ICMP type; codes:
inline constexpr std::uint8_t icmp_fragmentation_needed = 4;  // the others: icmp.cc
inline constexpr std::uint8_t icmpv6_unreachable = 1, icmpv6_too_big = 2, icmpv6_parameter_problem = 4;  // types

// Reads a message that quotes a TCP segment of the datagram's target; nullopt for any other message.
[[nodiscard]] std::optional<IcmpUnreachable> read_icmp_unreachable(const IpPacket& packet) noexcept;

}  // namespace offpath::tcp
