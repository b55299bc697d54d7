// Whether a ring between two processes is full, since when, and how often it has been.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace offpath {

struct FullRing {
  TimeNs since = never;     // never: it is not full
  std::uint64_t times = 0;  // that it became full

  void note(bool full, TimeNs now) noexcept {
    if (full == (since != never)) return;
    since = full ? now : never;
    if (full) ++times;
  }
  // Another ring of the same program and kind.
  void add(const FullRing& other) noexcept {
    since = std::min(since, other.since);
    times += other.times;
  }
};

}  // namespace offpath
