// Messages by which neighbours learn each other's hardware addresses: ARP for IPv4 (arp.h), neighbour discovery for
// IPv6 (neighbour_discovery.h). flow/neighbours.h processes both alike.
#pragma once

#include <optional>

#include "tcp/segment/address.h"
#include "tcp/segment/frame.h"

namespace offpath::tcp {

struct NeighbourMessage {
  // ARP reply, neighbour or router advertisement; otherwise ARP request or neighbour solicitation
  bool reply = false;
  // `sender`: of a reply, the address that it is about. `sender_mac`: zero where none is told. `sender` is unspecified
  // in the question of a node whether somebody has the address that it is about to take.
  MacAddress sender_mac{};
  IpAddress sender;
  MacAddress target_mac{};
  IpAddress target;
  // Of a solicitation that does not tell its sender's hardware address: where its frame came from.
  MacAddress reply_to{};
  // Of advertisements: whether it answers a solicitation, and replaces what was known.
  bool solicited = true, overrides = true;
  // Of a router's advertisement: how long it is a default router; 0: it is not.
  std::optional<std::uint16_t> router_s{};
  bool is_router = false;  // of a neighbour's advertisement
  friend bool operator==(const NeighbourMessage&, const NeighbourMessage&) = default;
};

// Where a message goes whose receiver's hardware address is not known: to all stations, or to those that may have this
// IPv6 address (RFC 2464, 7).
[[nodiscard]] MacAddress group_mac(const IpAddress& address) noexcept;

// The message in a frame; nullopt for every other frame, and for a message that makes no sense.
[[nodiscard]] std::optional<NeighbourMessage> read_neighbour_frame(Bytes frame) noexcept;
// The frame of an ARP message, a solicitation or a neighbour advertisement.
void write_neighbour_frame(const NeighbourMessage& message, const MacAddress& from, const MacAddress& to,
                           FrameToSend& frame) noexcept;

}  // namespace offpath::tcp
