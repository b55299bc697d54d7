// Addresses of the two ends: hardware addresses, IP addresses, endpoints, and the four numbers that name a connection.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "wire/areas/ip_address.h"

namespace offpath::tcp {

using MacAddress = std::array<std::uint8_t, 6>;
inline constexpr MacAddress broadcast_mac = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

// True for an address that a station can have: neither a group address (IEEE 802-2014, 8.4.2: the first bit on the
// wire) nor zero.
[[nodiscard]] constexpr bool is_station(const MacAddress& mac) noexcept {
  return (mac[0] & 1) == 0 && mac != MacAddress{};
}

using wire::IpAddress;
using wire::IpFamily;
using wire::ipv4;

// Nodes of this link only (RFC 4291, 2.5.6).
[[nodiscard]] constexpr bool is_link_local(const IpAddress& address) noexcept {
  return address.word(0) >> 22 == 0xfe800000u >> 22;
}
[[nodiscard]] constexpr bool is_multicast(const IpAddress& address) noexcept {
  return address.is_v4() ? address.v4() >> 28 == 14 : address.bytes[0] == 0xff;
}
// True for an address that one machine can have and be reached by.
[[nodiscard]] constexpr bool is_unicast(const IpAddress& address) noexcept {
  if (address.is_v4())
    return address.v4() >> 24 != 0 && address.v4() < 0xe0000000 && address.v4() >> 24 != 127;  // 127: loopback
  const auto halves = address.halves();
  const bool is_loopback = halves[0] == 0 && halves[1] == std::uint64_t{1} << 56;  // ::1
  return !is_multicast(address) && !address.is_unspecified() && !is_loopback;
}
// True if both are of one family and their first bits, the length of its prefix, are the same.
[[nodiscard]] constexpr bool share_prefix(const IpAddress& one, const IpAddress& other, unsigned length) noexcept {
  if (one.is_v4() != other.is_v4()) return false;
  for (unsigned at = one.is_v4() ? 3 : 0; length > 0; ++at) {
    const unsigned bits = length < 32 ? length : 32;
    if ((one.word(at) ^ other.word(at)) >> (32 - bits) != 0) return false;
    length -= bits;
  }
  return true;
}

struct Endpoint {
  IpAddress address;
  std::uint16_t port = 0;
  friend constexpr bool operator==(const Endpoint&, const Endpoint&) noexcept = default;
};

struct FlowKey {
  Endpoint local, remote;
  [[nodiscard]] constexpr IpFamily family() const noexcept { return remote.address.family(); }
  // All bytes at once: nothing depends on where the first difference is.
  friend constexpr bool operator==(const FlowKey& one, const FlowKey& other) noexcept {
    const auto a = std::bit_cast<std::array<std::uint32_t, 9>>(one),
               b = std::bit_cast<std::array<std::uint32_t, 9>>(other);
    std::uint32_t differs = 0;
    for (std::size_t i = 0; i < a.size(); ++i) differs |= a[i] ^ b[i];
    return differs == 0;
  }
};

[[nodiscard]] Result<IpAddress> ip_address(std::string_view text);  // "10.0.0.1", "2001:db8::1"
[[nodiscard]] std::string text_of(const IpAddress& address);
[[nodiscard]] std::string text_of(const Endpoint& endpoint);  // "10.0.0.1:80", "[2001:db8::1]:80"

}  // namespace offpath::tcp
