// Spreads a number's bits: the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). Every bit of the value
// changes about half of the result's bits, and different values have different results. It is not a cipher: use
// siphash.h for values that an adversary may choose.
#pragma once

#include <cstdint>

namespace offpath {

inline constexpr std::uint64_t golden_ratio = 0x9E37'79B9'7F4A'7C15;  // 2^64 over the golden ratio, odd

[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t value) noexcept {
  value = (value ^ (value >> 30)) * 0xBF58'476D'1CE4'E5B9;
  value = (value ^ (value >> 27)) * 0x94D0'49BB'1331'11EB;
  return value ^ (value >> 31);
}

}  // namespace offpath
