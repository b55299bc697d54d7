#include "actuator/keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/exchange/memory_actuator.h"

namespace offpath::actuator {
namespace {

using testing::HasSubstr;

struct One {
  One() {
    auto made = std::make_unique<MemoryActuator>(setting);
    actuator = made.get();
    std::vector<Keeper::Kept> kept;
    kept.push_back({std::move(made), "cpu", 100, 2000, 10 * second_ns});
    keeper.emplace(std::move(kept), [this](const std::string& line) { said.push_back(line); });
  }
  std::uint64_t setting = 777;  // out of its bounds would be as good
  MemoryActuator* actuator = nullptr;
  std::vector<std::string> said;
  std::optional<Keeper> keeper;
  TimeNs now = 5 * second_ns;
};

TEST(Keeper, ALeaseEndsWithTheFormerSetting) {
  One one;
  EXPECT_EQ(one.keeper->next_deadline(), never);
  ASSERT_EQ(one.keeper->set(0, 500, one.now + second_ns, one.now).value(), 500u);
  EXPECT_EQ(one.setting, 500u);
  EXPECT_EQ(one.keeper->next_deadline(), one.now + second_ns);
  EXPECT_TRUE(one.keeper->on_time(one.now + second_ns - 1));
  EXPECT_EQ(one.setting, 500u);
  EXPECT_TRUE(one.keeper->on_time(one.now + second_ns));
  EXPECT_EQ(one.setting, 777u);
  EXPECT_FALSE(one.keeper->holds_any());
}

TEST(Keeper, ANewSettingRenewsTheLeaseAndTheFormerOneStaysTheFirst) {
  One one;
  ASSERT_TRUE(one.keeper->set(0, 500, one.now + second_ns, one.now));
  ASSERT_TRUE(one.keeper->set(0, 600, one.now + 2 * second_ns, one.now));
  EXPECT_TRUE(one.keeper->on_time(one.now + second_ns));
  EXPECT_EQ(one.setting, 600u);
  // A shorter lease counts as well: it is what is granted now.
  ASSERT_TRUE(one.keeper->set(0, 600, one.now + second_ns, one.now));
  EXPECT_TRUE(one.keeper->on_time(one.now + second_ns));
  EXPECT_EQ(one.setting, 777u);
}

TEST(Keeper, ValuesAndLeasesAreBounded) {
  One one;
  EXPECT_EQ(one.keeper->set(0, 1, one.now + second_ns, one.now).value(), 100u);
  EXPECT_EQ(one.keeper->set(0, UINT64_MAX, never, one.now).value(), 2000u);
  EXPECT_EQ(one.setting, 2000u);
  EXPECT_EQ(one.keeper->next_deadline(), one.now + 10 * second_ns);
  EXPECT_FALSE(one.keeper->set(0, 500, one.now, one.now));
  EXPECT_FALSE(one.keeper->set(1, 500, never, one.now));
  EXPECT_EQ(one.setting, 2000u);
}

TEST(Keeper, GivingUpIsNow) {
  One one;
  EXPECT_TRUE(one.keeper->give_up(0, one.now));  // nothing is held
  ASSERT_TRUE(one.keeper->set(0, 500, never, one.now));
  EXPECT_TRUE(one.keeper->give_up(0, one.now));
  EXPECT_EQ(one.setting, 777u);
  ASSERT_TRUE(one.keeper->set(0, 500, never, one.now));
  EXPECT_TRUE(one.keeper->restore_all(one.now));
  EXPECT_EQ(one.setting, 777u);
}

TEST(Keeper, AReturnThatFailsIsTriedAgain) {
  One one;
  ASSERT_TRUE(one.keeper->set(0, 500, one.now + second_ns, one.now));
  one.actuator->fails = true;
  EXPECT_FALSE(one.keeper->set(0, 400, one.now + second_ns, one.now));
  const Status failed = one.keeper->on_time(one.now + second_ns);
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("actuator cpu: a faulty actuator"));
  EXPECT_EQ(one.keeper->next_deadline(), one.now + second_ns + Keeper::again_ns);
  EXPECT_FALSE(one.keeper->on_time(one.now + second_ns + Keeper::again_ns));
  EXPECT_EQ(one.said.size(), 1u);  // until it succeeds
  one.now += Keeper::again_ns;
  one.actuator->fails = false;
  EXPECT_TRUE(one.keeper->on_time(one.now + second_ns + Keeper::again_ns));
  EXPECT_EQ(one.setting, 777u);
}

TEST(Keeper, AFailedReturnDoesNotProlongTheLease) {
  One one;
  const TimeNs ends_at = one.now + second_ns / 4;
  ASSERT_TRUE(one.keeper->set(0, 500, ends_at, one.now));
  one.actuator->fails = true;
  EXPECT_FALSE(one.keeper->give_up(0, one.now));
  EXPECT_EQ(one.keeper->next_deadline(), ends_at);
  one.actuator->fails = false;
  EXPECT_TRUE(one.keeper->on_time(ends_at));
  EXPECT_EQ(one.setting, 777u);
}

TEST(Keeper, WhatAnEarlierOneLeftIsReturned) {
  One one;
  ASSERT_TRUE(one.actuator->hold());
  ASSERT_TRUE(one.actuator->set(500));
  one.keeper->recover(one.now);
  EXPECT_EQ(one.setting, 777u);
  EXPECT_FALSE(one.keeper->holds_any());
  ASSERT_EQ(one.said.size(), 1u);
  EXPECT_THAT(one.said[0], HasSubstr("an earlier keeper was killed"));
}

TEST(Keeper, WhatWasNeverSetIsNeverReturned) {
  One one;
  one.actuator->fails = true;
  EXPECT_FALSE(one.keeper->set(0, 500, never, one.now));
  EXPECT_FALSE(one.keeper->holds_any());
}

}  // namespace
}  // namespace offpath::actuator
