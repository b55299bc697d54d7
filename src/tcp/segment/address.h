// Addresses of the two ends: hardware addresses, IPv4 addresses, endpoints, and the four numbers that name a
// connection.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace offpath::tcp {

using MacAddress = std::array<std::uint8_t, 6>;
inline constexpr MacAddress broadcast_mac = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

// True for an address that a station can have: neither a group address (IEEE 802-2014, 8.4.2: the first bit on the
// wire) nor zero.
[[nodiscard]] constexpr bool is_station(const MacAddress& mac) noexcept {
  return (mac[0] & 1) == 0 && mac != MacAddress{};
}

// In the machine's byte order: 10.0.0.1 is 0x0a000001.
struct Ipv4Address {
  std::uint32_t value = 0;
  friend constexpr bool operator==(Ipv4Address, Ipv4Address) noexcept = default;

  [[nodiscard]] constexpr bool is_loopback() const noexcept { return value >> 24 == 127; }
  // True for an address that one machine can have and be reached by.
  [[nodiscard]] constexpr bool is_unicast() const noexcept {
    return value >> 24 != 0 && value < 0xe0000000 && !is_loopback();
  }
};

struct Endpoint {
  Ipv4Address address;
  std::uint16_t port = 0;
  friend constexpr bool operator==(const Endpoint&, const Endpoint&) noexcept = default;
};

struct FlowKey {
  Endpoint local, remote;
  friend constexpr bool operator==(const FlowKey&, const FlowKey&) noexcept = default;
};

[[nodiscard]] Result<Ipv4Address> ipv4_address(std::string_view text);  // "10.0.0.1"
[[nodiscard]] std::string text_of(Ipv4Address address);
[[nodiscard]] std::string text_of(const Endpoint& endpoint);  // "10.0.0.1:80"

}  // namespace offpath::tcp
