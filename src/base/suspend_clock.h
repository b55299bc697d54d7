// How long this machine has been suspended. CLOCK_MONOTONIC, which all timeouts here use, stops in suspend, so a
// suspended machine misses no timeout. A promise to another machine keeps running meanwhile, so code that keeps such a
// promise asks here.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace offpath {

// Nanoseconds of CLOCK_BOOTTIME, which continues in suspend.
[[nodiscard]] inline TimeNs boottime_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * second_ns + now.tv_nsec;
}

// Total suspended time since boot. Never too large; if this thread is interrupted between its two clock reads the
// result is too small, until the next call.
[[nodiscard]] inline TimeNs suspended_ns() noexcept {
  const TimeNs boot = boottime_ns();
  return std::max<TimeNs>(boot - monotonic_ns(), 0);
}

}  // namespace offpath
