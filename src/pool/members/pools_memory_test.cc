// Memory of one agent's pools: budgets, reserves, and requests that wait for room.
#include "testing/pool/one_member.h"

namespace offpath::pool {
namespace {

using wire::EntryKind;

TEST_F(PoolsTest, WhoWaitsForNoMemoryIsNotAskedWhenSomeBecomesFree) {
  ASSERT_TRUE(pools_.admit("hash:/p", user, effects_));
  ASSERT_TRUE(put("hash:/p", "here", 8));
  EXPECT_FALSE(pools_.waits_for_memory());
  room_ = 100;
  put_of_member("large", 4096);
  EXPECT_TRUE(pools_.waits_for_memory());
  EXPECT_FALSE(take<service::PullEffect>());
  room_ = 5000;
  pools_.on_memory_freed(now_, effects_);
  EXPECT_FALSE(pools_.waits_for_memory());
  const auto pull = take<service::PullEffect>();
  ASSERT_TRUE(pull);
  EXPECT_EQ(pull->pieces.front().length, 4096u);
}

TEST_F(PoolsTest, AMembersObjectIsNotReadDirectlyIntoMemoryThatAReaderMayHaveMapped) {
  ASSERT_TRUE(pools_.admit("hash:/p", user, effects_));
  put_of_member("first", 5000);
  auto pull = take<service::PullEffect>();
  ASSERT_TRUE(pull);
  EXPECT_TRUE(pull->pieces.front().unshared);
  {
    EXPECT_GE(cache_->take(20'000, user).value().share(), 0);
  }
  put_of_member("second", 20'000);
  pull = take<service::PullEffect>();
  ASSERT_TRUE(pull);
  EXPECT_FALSE(pull->pieces.front().unshared);
}

TEST_F(PoolsTest, WhatIsSetAsideForAPoolIsThereForItsObjectsThoughThereIsNoOtherRoom) {
  ASSERT_TRUE(pools_.admit("hash:/p", user, effects_));
  ASSERT_TRUE(pools_.admit("hash:/q", user, effects_));
  ASSERT_TRUE(pools_.reserve("hash:/p", 8192, [](std::string_view) { return false; }));
  EXPECT_EQ(pools_.reserved_left(), 8192u);
  room_ = 0;
  put_of_member("other", 4096, "hash:/q");
  EXPECT_FALSE(take<service::PullEffect>()) << "it is for another pool";
  put_of_member("first", 5000);
  const auto pull = take<service::PullEffect>();
  ASSERT_TRUE(pull);
  EXPECT_EQ(pools_.reserved_left(), 0u) << "whole pages";
  pools_.on_transfer(pull->token, {}, now_, effects_);
  EXPECT_TRUE(pools_.table().holds("hash:/p", {"first", "c"}));
  effects_.clear();
  put_of_member("second", 100);
  EXPECT_FALSE(take<service::PullEffect>());
  // The first object's end frees no memory for others, so there is no event; the waiting ones are still looked at.
  pools_.forget("hash:/p", {"first", "c"}, now_, effects_);
  EXPECT_EQ(pools_.reserved_left(), 8192u);
  EXPECT_LE(pools_.next_deadline(), now_ + second_ns);
  now_ = pools_.next_deadline();
  pools_.on_time(now_, effects_);
  EXPECT_TRUE(take<service::PullEffect>());
  pools_.forget_all("hash:/p", now_, effects_);
  EXPECT_EQ(pools_.reserved(), 0u);
}

TEST_F(PoolsTest, WhatStaysTakesOfItOnlyWhenThereIsNoOtherRoom) {
  ASSERT_TRUE(pools_.admit("hash:/p", user, effects_));
  ASSERT_TRUE(pools_.reserve("hash:/p", 8192, [](std::string_view column) { return column == "c"; }));
  put_of_member("first", 4096);
  EXPECT_TRUE(take<service::PullEffect>());
  EXPECT_EQ(pools_.reserved_left(), 8192u);
  room_ = 0;
  put_of_member("second", 4096);
  EXPECT_TRUE(take<service::PullEffect>());
  EXPECT_EQ(pools_.reserved_left(), 4096u);
  pools_.on_channel_closed(member, now_, effects_);
  EXPECT_EQ(pools_.reserved_left(), 8192u) << "who offered it is gone";
}

TEST(PoolsReserve, ItIsAllOfItOrNone) {
  PoolsOptions options;
  options.reserved_bytes_max = 10'000;
  Pools pools(options, service::BufferCache::make({}), [](std::uint64_t) { return true; });
  const auto nothing_stays = [](std::string_view) { return false; };
  ASSERT_TRUE(pools.reserve("hash:/p", 6000, nothing_stays));
  ASSERT_TRUE(pools.reserve("hash:/p", 6000, nothing_stays)) << "the same pool";
  const Status refused = pools.reserve("hash:/q", 4001, nothing_stays);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Error::too_large);
  for (const char* number : {"4001", "6000", "10000"})
    EXPECT_NE(refused.error().message.find(number), std::string::npos) << refused.error().message;
  EXPECT_EQ(pools.reserved(), 6000u);
  EXPECT_TRUE(pools.reserve("hash:/q", 4000, nothing_stays));
}

TEST_F(PoolsTest, WhatNeverFitsIsRefusedAtOnceThoughItsPoolsBudgetIsUsedUp) {
  ASSERT_TRUE(pools_.admit("hash:/p?budget=2MiB", user, effects_));
  room_ = 0;
  put_of_member("large", (1 << 20) + 1, "hash:/p?budget=2MiB");
  EXPECT_FALSE(pools_.waits_for_memory());
  const auto refused = take<service::FailEffect>();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->failure.code, Error::too_large) << refused->failure.message;
  put_of_member("fits", 1 << 20, "hash:/p?budget=2MiB");
  EXPECT_TRUE(pools_.waits_for_memory());
  EXPECT_FALSE(take<service::FailEffect>());
}

TEST_F(PoolsTest, ABudgetIsFreeAsSoonAsAnObjectIsDroppedWhoeverReadsIt) {
  const auto name = pools_.admit("local:/p?budget=100", user, effects_);
  ASSERT_TRUE(name) << name.error().message;
  ASSERT_EQ(*put(*name, "first", 80), mover::Stored::now);
  ask(program, EntryKind::pool_get, wire::PoolGet{*name, "first", "c", 0});
  const auto held = take<service::HandOverEffect>();
  ASSERT_TRUE(held);
  ASSERT_EQ(*put(*name, "second", 80, 11), mover::Stored::later);
  pools_.on_time(now_, effects_);
  EXPECT_FALSE(take<service::StoredEffect>());
  EXPECT_GT(pools_.next_deadline(), now_);
  ask(program, EntryKind::pool_drop, wire::PoolDrop{*name, "first", "*"});
  EXPECT_LE(pools_.next_deadline(), now_) << "though a reader still holds the memory";
  pools_.on_time(now_, effects_);
  const auto stored = take<service::StoredEffect>();
  ASSERT_TRUE(stored);
  EXPECT_EQ(stored->token, 11u);
  EXPECT_TRUE(stored->status);
  EXPECT_GT(pools_.next_deadline(), now_);
}

}  // namespace
}  // namespace offpath::pool
