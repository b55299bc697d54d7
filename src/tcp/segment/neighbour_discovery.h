// Neighbour discovery for IPv6 (RFC 4861), as far as a host needs it: neighbour solicitations and advertisements, which
// also find out whether an address is taken (RFC 4862, 5.4), router solicitations, and of router advertisements the
// default router. Redirects and prefixes are ignored. multicast_listener.h has what goes with groups.
#pragma once

#include "tcp/segment/ip_packet.h"
#include "tcp/segment/neighbour_message.h"

namespace offpath::tcp {

inline constexpr std::uint8_t nd_router_solicitation = 133, nd_router_advertisement = 134,
                              nd_neighbour_solicitation = 135, nd_neighbour_advertisement = 136;  // types of ICMPv6
[[nodiscard]] constexpr bool is_discovery(std::uint8_t icmpv6_type) noexcept {
  return icmpv6_type >= nd_router_solicitation && icmpv6_type <= nd_neighbour_advertisement;
}

inline constexpr std::uint8_t discovery_hop_limit = 255;  // no router has passed such a datagram on
inline constexpr IpAddress all_nodes{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
    all_routers{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};
// The group of the nodes whose addresses have the same last bytes (RFC 4291, 2.7.1).
[[nodiscard]] constexpr IpAddress solicited_node(const IpAddress& address) noexcept {
  const auto& from = address.bytes;
  return {{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, from[13], from[14], from[15]}};
}
[[nodiscard]] constexpr MacAddress multicast_mac(const IpAddress& group) noexcept {
  const auto& from = group.bytes;
  return {0x33, 0x33, from[12], from[13], from[14], from[15]};
}

// IPv6 header, message, and the option with a hardware address.
inline constexpr std::size_t discovery_bytes_max = 40 + 24 + 8;

// Reads the ICMPv6 message of a datagram, which came from `from`; nullopt unless it is a valid one of those above
// (RFC 4861, 6.1.2, 7.1). Router solicitations, which are for routers only, are not read.
[[nodiscard]] std::optional<NeighbourMessage> read_neighbour_discovery(const IpPacket& packet,
                                                                       const MacAddress& from) noexcept;
// A neighbour solicitation, to the node itself if `to` is a station; or a neighbour advertisement. Returns the size of
// the datagram.
[[nodiscard]] std::size_t write_neighbour_discovery(const NeighbourMessage& message, const MacAddress& to,
                                                    std::span<std::byte, discovery_bytes_max> datagram) noexcept;
// The frame with which a host asks all routers to advertise themselves.
void write_router_solicitation(const IpAddress& self, const MacAddress& mac, FrameToSend& frame) noexcept;

}  // namespace offpath::tcp
