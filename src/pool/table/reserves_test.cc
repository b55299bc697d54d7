// The sum of reserves is bounded, and a reserve outlives its pool's entry while objects use it.
#include "pool/table/reserves.h"

#include <gtest/gtest.h>

namespace offpath::pool {
namespace {

bool none_stays(std::string_view /*column*/) { return false; }

TEST(Reserves, TheSumOfAllPoolsIsBounded) {
  Reserves reserves(10'000);
  ASSERT_TRUE(reserves.add("a", 6000, none_stays, "here"));
  const Status too_large = reserves.add("b", 4001, none_stays, "here");
  ASSERT_FALSE(too_large);
  EXPECT_EQ(too_large.error().code, Error::too_large);
  EXPECT_EQ(reserves.find("b"), nullptr);
  EXPECT_TRUE(reserves.add("b", 4000, none_stays, "here"));
  EXPECT_EQ(reserves.bytes(), 10'000u);
  EXPECT_FALSE(reserves.add("c", UINT64_MAX, none_stays, "here"));
}

TEST(Reserves, ASecondReserveOfAPoolReplacesTheFirst) {
  Reserves reserves(10'000);
  ASSERT_TRUE(reserves.add("a", 6000, none_stays, "here"));
  ASSERT_TRUE(reserves.add("a", 9000, none_stays, "here"));
  EXPECT_EQ(reserves.bytes(), 9000u);
  EXPECT_FALSE(reserves.add("a", 10'001, none_stays, "here"));
  EXPECT_EQ(reserves.bytes(), 9000u) << "a refused one changes nothing";
}

TEST(Reserves, AShareOutlivesTheReserveOfItsPool) {
  Reserves reserves(10'000);
  ASSERT_TRUE(reserves.add("a", 6000, none_stays, "here"));
  std::shared_ptr<const void> share = reserves.find("a")->memory->take(4096);
  ASSERT_NE(share, nullptr);
  EXPECT_EQ(reserves.left(), 1904u);
  EXPECT_EQ(reserves.find("a")->memory->take(4096), nullptr);
  reserves.remove("a");
  EXPECT_EQ(reserves.bytes(), 0u);
  share.reset();
}

}  // namespace
}  // namespace offpath::pool
