#include "base/backoff.h"

#include <gtest/gtest.h>

namespace offpath {
namespace {

TEST(Backoff, DoublesUpToTheMost) {
  for (const auto& [doublings, wait] : {std::pair{0u, 10}, {1u, 20}, {2u, 40}, {3u, 75}, {4u, 75}, {~0u, 75}})
    EXPECT_EQ(backoff_ns(10, doublings, 75), wait) << doublings;
  EXPECT_EQ(backoff_ns(10, 3, 80), 80) << "exactly the most";
}

TEST(Backoff, IsNeverMoreThanTheMost) {
  EXPECT_EQ(backoff_ns(100, 0, 75), 75);
  EXPECT_EQ(backoff_ns(1, 5, 0), 0);
}

TEST(Backoff, DoesNotOverflow) {
  EXPECT_EQ(backoff_ns(1, 62, never), TimeNs{1} << 62);
  EXPECT_EQ(backoff_ns(1, 63, never), never);
  EXPECT_EQ(backoff_ns(second_ns, 40, never), never);
  EXPECT_EQ(backoff_ns(0, 40, second_ns), 0);
}

}  // namespace
}  // namespace offpath
