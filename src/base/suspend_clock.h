// How long this machine has slept. CLOCK_MONOTONIC, by which everything here counts, stands still in suspend, and so do
// timeouts: nobody is late because the machine slept. What was promised to another machine is not over later for that,
// so whoever keeps such a promise asks here.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace offpath {

// Nanoseconds of CLOCK_BOOTTIME, which goes on in suspend.
[[nodiscard]] inline TimeNs boottime_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * second_ns + now.tv_nsec;
}

// In all, since the machine was started. Never more than it was: a pause between the two looks makes it less, until the
// next call.
[[nodiscard]] inline TimeNs suspended_ns() noexcept {
  const TimeNs boot = boottime_ns();
  return std::max<TimeNs>(boot - monotonic_ns(), 0);
}

}  // namespace offpath
