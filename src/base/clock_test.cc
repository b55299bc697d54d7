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

TEST(MonotonicNs, NeverGoesBack) {
  TimeNs before = monotonic_ns();
  EXPECT_GT(before, 0);
  for (int i = 0; i < 1000; ++i) {
    TimeNs now = monotonic_ns();
    ASSERT_GE(now, before);
    before = now;
  }
}

}  // namespace
}  // namespace offpath
