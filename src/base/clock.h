// Time. State machines take it as an argument; only loops and programs read the clock.
#pragma once

#include <cstdint>
#include <ctime>
#include <limits>

namespace offpath {

// Nanoseconds of CLOCK_MONOTONIC, or of virtual time in a simulation. Signed, so differences are safe.
using TimeNs = std::int64_t;

inline constexpr TimeNs never = std::numeric_limits<TimeNs>::max();
inline constexpr TimeNs microsecond_ns = 1'000;
inline constexpr TimeNs millisecond_ns = 1'000'000;
inline constexpr TimeNs second_ns = 1'000'000'000;

[[nodiscard]] inline TimeNs monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * second_ns + now.tv_nsec;
}

// now + wait, without overflow; a negative wait means forever.
[[nodiscard]] constexpr TimeNs deadline_after(TimeNs now, TimeNs wait) noexcept {
  if (wait < 0 || wait >= never - now) return never;
  return now + wait;
}

}  // namespace offpath
