// Numbers in network byte order: the most significant byte first.
#pragma once

#include <bit>
#include <cstdint>

#include "base/bytes.h"

namespace offpath::tcp {

[[nodiscard]] inline std::uint16_t load_be16(const std::byte* from) noexcept {
  return __builtin_bswap16(load<std::uint16_t>(from));
}
[[nodiscard]] inline std::uint32_t load_be32(const std::byte* from) noexcept {
  return __builtin_bswap32(load<std::uint32_t>(from));
}
inline void store_be16(std::byte* to, std::uint16_t value) noexcept { store(to, __builtin_bswap16(value)); }
inline void store_be32(std::byte* to, std::uint32_t value) noexcept { store(to, __builtin_bswap32(value)); }

}  // namespace offpath::tcp
