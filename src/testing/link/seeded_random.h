// Random numbers that are the same for the same seed on every machine: for links whose faults and delays must
// be repeatable from a printed seed. Not for keys.
#pragma once

#include <cstdint>

#include "base/hash/mix.h"
#include "base/status.h"

namespace offpath::link {

// splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
class SeededRandom {
 public:
  explicit SeededRandom(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t next() noexcept { return mix(state_ += golden_ratio); }
  // In [0, bound); 0 if bound is 0. The bias of the modulo is far below what a test could see.
  std::uint64_t below(std::uint64_t bound) noexcept { return bound == 0 ? 0 : next() % bound; }
  // In [low, high].
  std::int64_t between(std::int64_t low, std::int64_t high) noexcept {
    OFP_ASSERT(low <= high);
    const std::uint64_t width = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) +
                                     (width == UINT64_MAX ? next() : below(width + 1)));
  }
  // Draws even if the probability is 0, so that switching one fault off leaves the others where they were.
  bool chance(double probability) noexcept { return static_cast<double>(next() >> 11) * 0x1.0p-53 < probability; }
  // A seed for something that shall not disturb this sequence.
  SeededRandom split() noexcept { return SeededRandom(next()); }

 private:
  std::uint64_t state_;
};

}  // namespace offpath::link
