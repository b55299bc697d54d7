#include "tcp/segment/sequence.h"

#include <gtest/gtest.h>

namespace offpath::tcp {
namespace {

TEST(Sequence, ComparesAcrossTheWrap) {
  const Sequence before(0xffffff00), after(0x100);
  EXPECT_LT(before, after);
  EXPECT_GT(after, before);
  EXPECT_EQ(after - before, 0x200);
  EXPECT_EQ(before - after, -0x200);
  EXPECT_EQ(before + 0x200, after);
  EXPECT_EQ(after - 0x200u, before);
  EXPECT_EQ(bytes_between(before, after), 0x200u);
  EXPECT_EQ(earlier(before, after), before);
  EXPECT_EQ(later(before, after), after);
}

TEST(Sequence, HoldsForAllDistancesBelowHalfTheCircle) {
  for (const std::uint32_t start : {0u, 1u, 0x7fffffffu, 0x80000000u, 0xffffffffu})
    for (const std::uint32_t distance : {1u, 2u, 0x10000u, 0x7ffffffeu, 0x7fffffffu}) {
      EXPECT_TRUE(Sequence(start) < Sequence(start) + distance) << start << " " << distance;
      EXPECT_FALSE(Sequence(start) + distance <= Sequence(start)) << start << " " << distance;
    }
  EXPECT_TRUE(Sequence(7) <= Sequence(7) && Sequence(7) >= Sequence(7) && !(Sequence(7) < Sequence(7)));
}

}  // namespace
}  // namespace offpath::tcp
