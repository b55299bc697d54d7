// For tests that compare what two amounts of work cost: in time of this thread's processor, which does not pass while
// other threads of the machine run. Read this first in src/testing, then sanitized.h; the rest is by folder.
#pragma once

#include <algorithm>
#include <ctime>

#include "base/clock.h"

namespace offpath {

[[nodiscard]] inline TimeNs thread_cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * second_ns + now.tv_nsec;
}

// The least of five measurements: interrupts and cold caches lengthen some. Reading this clock is a system call, so
// `work` repeats what takes less than a microsecond.
template <class Work>
[[nodiscard]] TimeNs least_cpu_ns(const Work& work) {
  TimeNs least = never;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const TimeNs began = thread_cpu_ns();
    work();
    least = std::min(least, thread_cpu_ns() - began);
  }
  return least;
}

}  // namespace offpath
