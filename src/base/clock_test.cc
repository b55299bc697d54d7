#include "base/clock.h"

#include <gtest/gtest.h>

namespace offpath {
namespace {

TEST(DeadlineAfter, AddsWithoutOverflow) {
  EXPECT_EQ(deadline_after(10, 5), 15);
  EXPECT_EQ(deadline_after(10, 0), 10);
  EXPECT_EQ(deadline_after(10, never), never);
  EXPECT_EQ(deadline_after(10, never - 10), never);
  EXPECT_EQ(deadline_after(10, never - 11), never - 1);
  EXPECT_EQ(deadline_after(never, 1), never);
}

TEST(DeadlineAfter, NegativeWaitIsForever) {
  EXPECT_EQ(deadline_after(10, -1), never);
  EXPECT_EQ(deadline_after(0, -second_ns), never);
}

TEST(MonotonicNs, IsTheKernelsMonotonicClockInNanoseconds) {
  const auto kernel_ns = [] {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * second_ns + now.tv_nsec;
  };
  for (int i = 0; i < 1000; ++i) {
    const TimeNs before = kernel_ns(), now = monotonic_ns(), after = kernel_ns();
    ASSERT_LE(before, now);
    ASSERT_LE(now, after);
  }
}

}  // namespace
}  // namespace offpath
