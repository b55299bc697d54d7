// ARP messages for IPv4 over Ethernet (RFC 826). neighbours.h processes them.
#pragma once

#include <optional>

#include "tcp/segment/address.h"
#include "tcp/segment/big_endian.h"

namespace offpath::tcp {

inline constexpr std::size_t arp_bytes = 28;

struct ArpMessage {
  bool reply = false;  // otherwise a request
  MacAddress sender_mac{};
  Ipv4Address sender;
  MacAddress target_mac{};
  Ipv4Address target;
  friend bool operator==(const ArpMessage&, const ArpMessage&) = default;
};

// Returns nullopt unless it is a request or reply for IPv4 over Ethernet. Bytes behind the message are padding.
[[nodiscard]] std::optional<ArpMessage> read_arp(Bytes bytes) noexcept;
void write_arp(const ArpMessage& message, std::span<std::byte, arp_bytes> to) noexcept;

}  // namespace offpath::tcp
