// An IP address of either family, 16 bytes in network order: IPv6 as it is, IPv4 as ::ffff:a.b.c.d (RFC 4291, 2.5.5.2).
// All addresses are kept in this form, and the family follows from it.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace offpath::wire {

enum class IpFamily : std::uint8_t { v4, v6 };

struct IpAddress {
  std::array<std::uint8_t, 16> bytes{};

  // Halves as they lie in memory, for comparisons.
  [[nodiscard]] constexpr std::array<std::uint64_t, 2> halves() const noexcept {
    return std::bit_cast<std::array<std::uint64_t, 2>>(bytes);
  }
  friend constexpr bool operator==(const IpAddress& one, const IpAddress& other) noexcept {
    const auto a = one.halves(), b = other.halves();
    return ((a[0] ^ b[0]) | (a[1] ^ b[1])) == 0;
  }

  [[nodiscard]] constexpr bool is_v4() const noexcept {
    const auto words = halves();
    return words[0] == 0 && static_cast<std::uint32_t>(words[1]) == 0xffff0000;  // bytes 8 to 11: 0 0 ff ff
  }
  [[nodiscard]] constexpr IpFamily family() const noexcept { return is_v4() ? IpFamily::v4 : IpFamily::v6; }
  // The IPv4 address, in the machine's byte order: 10.0.0.1 is 0x0a000001.
  [[nodiscard]] constexpr std::uint32_t v4() const noexcept { return word(3); }
  // 32 bits of it, in the machine's byte order; 0: the first ones.
  [[nodiscard]] constexpr std::uint32_t word(unsigned at) const noexcept {
    return __builtin_bswap32(std::bit_cast<std::array<std::uint32_t, 4>>(bytes)[at]);
  }
  // True for :: and for 0.0.0.0, which no machine has.
  [[nodiscard]] constexpr bool is_unspecified() const noexcept {
    return bytes == decltype(bytes){} || (is_v4() && v4() == 0);
  }
  // The exclusive or of its 32-bit words, for steering. Of two IPv4 addresses, the constant parts cancel out.
  [[nodiscard]] constexpr std::uint32_t folded() const noexcept { return word(0) ^ word(1) ^ word(2) ^ word(3); }
};
static_assert(sizeof(IpAddress) == 16 && alignof(IpAddress) == 1);
static_assert(std::endian::native == std::endian::little);

// 10.0.0.1 is 0x0a000001.
[[nodiscard]] constexpr IpAddress ipv4(std::uint32_t value) noexcept {
  const std::array<std::uint64_t, 2> halves{0, 0xffff0000 | std::uint64_t{__builtin_bswap32(value)} << 32};
  return {std::bit_cast<std::array<std::uint8_t, 16>>(halves)};
}

}  // namespace offpath::wire
