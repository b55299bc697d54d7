#include "sift/pools/awaited_pools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;

constexpr uid_t asker = 1000, other_asker = 1001;
constexpr const char* waiting_pool = "sift:/t?key=id&wait=3";
const Failure refused{Error::would_block, "too few live"};

TEST(AwaitedPools, ANameWaitsWithOneTextForOneUser) {
  AwaitedPools pools(2);
  EXPECT_EQ(pools.add(waiting_pool, asker, refused).value(), waiting_pool);
  EXPECT_EQ(pools.add("sift:/t", asker, refused).value(), waiting_pool);
  EXPECT_EQ(pools.add("sift:/t", other_asker, refused).error().code, Error::denied);
  EXPECT_EQ(pools.add("sift:/t?key=other&wait=3", asker, refused).error().code, Error::exists);
  EXPECT_EQ(pools.changes(), 1u);
  EXPECT_TRUE(pools.add("sift:/u?key=id&wait=3", asker, refused));
  const auto third = pools.add("sift:/v?key=id&wait=3", asker, refused);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, Error::too_large);
  EXPECT_THAT(third.error().message, HasSubstr("limits.user_pools_max"));
  EXPECT_TRUE(pools.add("sift:/v?key=id&wait=3", other_asker, refused)) << "each user has a limit of their own";
}

TEST(AwaitedPools, ANameAloneMeansThePoolThatWaits) {
  AwaitedPools pools(2);
  EXPECT_FALSE(pools.meant("sift:/t", asker).value());
  ASSERT_TRUE(pools.add(waiting_pool, asker, refused));
  EXPECT_EQ(pools.meant("sift:/t", 0).value(), std::pair(std::string(waiting_pool), asker));
  EXPECT_FALSE(pools.meant(waiting_pool, asker).value()) << "it says what it is itself";
  EXPECT_EQ(pools.meant("sift:/t", other_asker).error().code, Error::denied);
}

TEST(AwaitedPools, OnlySampledRangesAreLearntOfAFrame) {
  AwaitedPools pools(2);
  ASSERT_TRUE(pools.add(waiting_pool, asker, refused));
  EXPECT_EQ(pools.learn("sift:/t", nullptr).value(), "");
  ASSERT_TRUE(pools.add("sift:/u?key=id&by=range&ranges=sample&fanout=2", asker, refused));
  const auto learnt = pools.learn("sift:/u", nullptr);
  ASSERT_FALSE(learnt);
  EXPECT_EQ(learnt.error().code, Error::schema);
}

TEST(AwaitedPools, APoolThatIsMadeTakesItsRequestsAlong) {
  AwaitedPools pools(2);
  ASSERT_TRUE(pools.add(waiting_pool, asker, refused));
  pools.find(waiting_pool)->deferred.add([](TimeNs, service::Effects&) {});
  const auto made = pools.take("sift:/t");
  ASSERT_TRUE(made);
  EXPECT_FALSE(made->deferred.empty());
  EXPECT_FALSE(pools.has("sift:/t"));
  EXPECT_FALSE(pools.take("sift:/t"));
}

}  // namespace
}  // namespace offpath::sift
