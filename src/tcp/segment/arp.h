// ARP messages for IPv4 over Ethernet (RFC 826).
#pragma once

#include "tcp/segment/neighbour_message.h"

namespace offpath::tcp {

inline constexpr std::size_t arp_bytes = 28;

// Returns nullopt unless it is a request or reply for IPv4 over Ethernet. Bytes behind the message are padding.
[[nodiscard]] std::optional<NeighbourMessage> read_arp(Bytes bytes) noexcept;
void write_arp(const NeighbourMessage& message, std::span<std::byte, arp_bytes> to) noexcept;

}  // namespace offpath::tcp
