#include "sift/pools/awaited_pools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;

constexpr uid_t user = 1000, other_user = 1001;
constexpr const char* text = "sift:/t?key=id&wait=3";
const Failure why{Error::would_block, "too few live"};

TEST(AwaitedPools, ANameWaitsWithOneTextForOneUser) {
  AwaitedPools pools(2);
  EXPECT_EQ(pools.add(text, user, why).value(), text);
  EXPECT_EQ(pools.add("sift:/t", user, why).value(), text);
  EXPECT_EQ(pools.add("sift:/t", other_user, why).error().code, Error::denied);
  EXPECT_EQ(pools.add("sift:/t?key=other&wait=3", user, why).error().code, Error::exists);
  EXPECT_EQ(pools.changes(), 1u);
  EXPECT_TRUE(pools.add("sift:/u?key=id&wait=3", user, why));
  const auto third = pools.add("sift:/v?key=id&wait=3", user, why);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, Error::too_large);
  EXPECT_THAT(third.error().message, HasSubstr("limits.user_pools_max"));
  EXPECT_TRUE(pools.add("sift:/v?key=id&wait=3", other_user, why)) << "each user has a limit of their own";
}

TEST(AwaitedPools, ANameAloneMeansThePoolThatWaits) {
  AwaitedPools pools(2);
  EXPECT_FALSE(pools.meant("sift:/t", user).value());
  ASSERT_TRUE(pools.add(text, user, why));
  EXPECT_EQ(pools.meant("sift:/t", 0).value(), std::pair(std::string(text), user));
  EXPECT_FALSE(pools.meant(text, user).value()) << "it says what it is itself";
  EXPECT_EQ(pools.meant("sift:/t", other_user).error().code, Error::denied);
}

TEST(AwaitedPools, OnlySampledRangesAreLearntOfAFrame) {
  AwaitedPools pools(2);
  ASSERT_TRUE(pools.add(text, user, why));
  EXPECT_EQ(pools.learn("sift:/t", nullptr).value(), "");
  ASSERT_TRUE(pools.add("sift:/u?key=id&by=range&ranges=sample&fanout=2", user, why));
  const auto learnt = pools.learn("sift:/u", nullptr);
  ASSERT_FALSE(learnt);
  EXPECT_EQ(learnt.error().code, Error::schema);
}

TEST(AwaitedPools, APoolThatIsMadeTakesItsRequestsAlong) {
  AwaitedPools pools(2);
  ASSERT_TRUE(pools.add(text, user, why));
  pools.find(text)->deferred.add([](TimeNs, service::Effects&) {});
  const auto made = pools.take("sift:/t");
  ASSERT_TRUE(made);
  EXPECT_FALSE(made->deferred.empty());
  EXPECT_FALSE(pools.has("sift:/t"));
  EXPECT_FALSE(pools.take("sift:/t"));
}

}  // namespace
}  // namespace offpath::sift
