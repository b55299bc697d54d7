// FNV-1a with 64 bits (Fowler, Noll and Vo; RFC 9923): a hash of texts that is the same on every machine and in every
// version, for names that members compare and placements that last. It is not a cipher, and leaves the high bits of
// short texts alike: mix.h spreads them.
//
// Read this first in src/base/hash, then mix.h and siphash.h.
#pragma once

#include <cstdint>
#include <string_view>

namespace offpath {

inline constexpr std::uint64_t fnv1a_offset_basis = 0xCBF2'9CE4'8422'2325, fnv1a_prime = 0x100'0000'01B3;

// `hash`: of the text before, to hash several one after the other.
[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = fnv1a_offset_basis) noexcept {
  for (const char each : text) hash = (hash ^ static_cast<unsigned char>(each)) * fnv1a_prime;
  return hash;
}

}  // namespace offpath
