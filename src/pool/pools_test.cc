// The pools of one agent by themselves: requests and answers in, effects out. Several agents together: tests/sim/pool_sim_test.cc.
#include "pool/pools.h"

#include <gtest/gtest.h>

#include <cstring>

namespace offpath::pool {
namespace {

using wire::EntryKind;

constexpr mover::ChannelNumber program = 1, member = 2;
constexpr uid_t user = 1000;

class PoolsTest : public ::testing::Test {
 protected:
  PoolsTest() {
    pools_.set_self("a", 7);
    pools_.on_channel_open(program, user);
    pools_.on_channel_open(member, user);
  }
  FramePtr frame_of(std::size_t bytes) {
    auto frame = std::make_shared<mover::Frame>();
    frame->buffer = *cache_->take(bytes, user);
    frame->bytes = bytes;
    std::memset(frame->buffer.data(), 'x', bytes);
    return frame;
  }
  Result<mover::Stored> put(const std::string& pool, const std::string& row, std::size_t bytes, std::uint64_t token = 5) {
    return pools_.put({pool, row, "c", user, 0, false}, frame_of(bytes), token, now_, effects_);
  }
  template <class Message>
  void ask(mover::ChannelNumber channel, EntryKind kind, const Message& message) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    const channel::Entry entry{++ticket_, static_cast<std::uint8_t>(kind), payload};
    if (channel == member) pools_.on_peer_request(channel, entry, true, now_, effects_);
    else pools_.on_request(channel, entry, now_, effects_);
  }
  void put_of_member(const std::string& row, std::uint64_t bytes, const std::string& pool = "hash:/p") {
    wire::PeerPut put{.user = user, .writer = 3, .number = ++ticket_, .rows = 0, .keep = 0, .wait_ns = 30 * second_ns, .arrow = false, .hidden = false,
                      .moved = false, .recovered = false, .offer = 0, .object = {.region = 1, .generation = 1, .offset = 0, .length = bytes},
                      .pool = pool, .row_key = row, .column_key = "c"};
    ask(member, EntryKind::peer_put, put);
  }
  // As many effects of that kind as there are; the last one's copy.
  template <class Effect>
  std::optional<Effect> take() {
    std::optional<Effect> found;
    for (const mover::Effect& effect : effects_)
      if (const auto* each = std::get_if<Effect>(&effect)) found = *each;
    effects_.clear();
    return found;
  }

  std::shared_ptr<mover::BufferCache> cache_ = mover::BufferCache::make({});
  std::uint64_t room_ = UINT64_MAX;
  static PoolsOptions options() {
    PoolsOptions made;
    made.object_bytes_max = 1 << 20;
    return made;
  }
  Pools pools_{options(), cache_, [this](std::uint64_t bytes) { return bytes <= room_; }};
  Effects effects_;
  TimeNs now_ = second_ns;
  std::uint64_t ticket_ = 0;
};

TEST_F(PoolsTest, ANameIsReadWhenAStreamIsAdmittedAndAtNoPut) {
  const std::string text = "hash:/p?replicas=2&overwrite=no";
  const auto name = pools_.admit(text, user, effects_);
  ASSERT_TRUE(name) << name.error().message;
  EXPECT_EQ(*name, "hash:/p");
  ASSERT_TRUE(put(*name, "r", 8));
  EXPECT_EQ(put(*name, "r", 8).error().code, Error::exists) << "its options hold";
  EXPECT_EQ(put(text, "s", 8).error().code, Error::not_found) << "who has not been admitted";
  EXPECT_EQ(pools_.admit("hash:/p?replicas=3", user, effects_).error().code, Error::exists);
  EXPECT_EQ(pools_.admit("hash:/p?replicas=3&", user, effects_).error().code, Error::invalid);
  EXPECT_EQ(*pools_.admit("hash:/p", user, effects_), "hash:/p");
}

TEST_F(PoolsTest, WhoWaitsForNoMemoryIsNotAskedWhenSomeBecomesFree) {
  ASSERT_TRUE(pools_.admit("hash:/p", user, effects_));
  ASSERT_TRUE(put("hash:/p", "here", 8));
  EXPECT_FALSE(pools_.waits_for_memory());
  room_ = 100;
  put_of_member("large", 4096);
  EXPECT_TRUE(pools_.waits_for_memory());
  EXPECT_FALSE(take<mover::PullEffect>());
  room_ = 5000;
  pools_.on_memory_freed(now_, effects_);
  EXPECT_FALSE(pools_.waits_for_memory());
  const auto pull = take<mover::PullEffect>();
  ASSERT_TRUE(pull);
  EXPECT_EQ(pull->pieces.front().length, 4096u);
}

TEST_F(PoolsTest, WhatNeverFitsIsRefusedAtOnceThoughItsPoolsBudgetIsUsedUp) {
  ASSERT_TRUE(pools_.admit("hash:/p?budget=2MiB", user, effects_));
  room_ = 0;
  put_of_member("large", (1 << 20) + 1, "hash:/p?budget=2MiB");
  EXPECT_FALSE(pools_.waits_for_memory());
  const auto refused = take<mover::FailEffect>();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->failure.code, Error::too_large) << refused->failure.message;
  put_of_member("fits", 1 << 20, "hash:/p?budget=2MiB");
  EXPECT_TRUE(pools_.waits_for_memory());
  EXPECT_FALSE(take<mover::FailEffect>());
}

TEST_F(PoolsTest, APutThatNoOwnerCanEverTakeHasFailedWithItsFirstAnswer) {
  ASSERT_TRUE(pools_.admit("hash:/p?members=b", user, effects_));
  pools_.on_members({"a", "b"}, {}, now_, effects_);
  effects_.clear();
  ASSERT_EQ(*put("hash:/p", "r", 64, 9), mover::Stored::later);
  const auto asked = take<mover::AskEffect>();
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->member, "b");
  pools_.on_answer(asked->token, fail(Error::too_large, "too large"), now_, effects_);
  const auto stored = take<mover::StoredEffect>();
  ASSERT_TRUE(stored);
  EXPECT_EQ(stored->token, 9u);
  EXPECT_EQ(stored->status.error().code, Error::too_large);
}

TEST_F(PoolsTest, AMoveThatFailsIsTriedAgain) {
  ASSERT_TRUE(pools_.admit("hash:/p?replicas=2", user, effects_));
  ASSERT_EQ(*put("hash:/p", "r", 64), mover::Stored::now);
  const auto begin = [&] {
    auto asked = take<mover::AskEffect>();
    EXPECT_TRUE(asked);
    EXPECT_EQ(asked->kind, EntryKind::peer_put);
    return asked->token;
  };
  pools_.on_members({"a", "b"}, {}, now_, effects_);
  const std::uint64_t first = begin();
  EXPECT_EQ(pools_.counters().moves_waiting, 1u);
  pools_.on_answer(first, fail(Error::denied, "no"), now_, effects_);
  EXPECT_EQ(pools_.counters().failed_moves, 1u);
  EXPECT_EQ(pools_.counters().moves_waiting, 1u);
  pools_.on_time(now_, effects_);
  EXPECT_FALSE(take<mover::AskEffect>()) << "at once";
  now_ = pools_.next_deadline();
  ASSERT_LT(now_, never);
  pools_.on_time(now_, effects_);
  pools_.on_answer(begin(), Answer{wire::ReplyKind::done}, now_, effects_);
  EXPECT_EQ(pools_.counters().moved_rows, 1u);
  EXPECT_EQ(pools_.counters().moves_waiting, 0u);
}

TEST_F(PoolsTest, ABudgetIsFreeAsSoonAsAnObjectIsDroppedWhoeverReadsIt) {
  const auto name = pools_.admit("local:/p?budget=100", user, effects_);
  ASSERT_TRUE(name) << name.error().message;
  ASSERT_EQ(*put(*name, "first", 80), mover::Stored::now);
  ask(program, EntryKind::pool_get, wire::PoolGet{*name, "first", "c", 0});
  const auto held = take<mover::HandOverEffect>();
  ASSERT_TRUE(held);
  ASSERT_EQ(*put(*name, "second", 80, 11), mover::Stored::later);
  pools_.on_time(now_, effects_);
  EXPECT_FALSE(take<mover::StoredEffect>());
  EXPECT_GT(pools_.next_deadline(), now_);
  ask(program, EntryKind::pool_drop, wire::PoolDrop{*name, "first", "*"});
  EXPECT_LE(pools_.next_deadline(), now_) << "though the memory is its reader's yet";
  pools_.on_time(now_, effects_);
  const auto stored = take<mover::StoredEffect>();
  ASSERT_TRUE(stored);
  EXPECT_EQ(stored->token, 11u);
  EXPECT_TRUE(stored->status);
  EXPECT_GT(pools_.next_deadline(), now_);
}

}  // namespace
}  // namespace offpath::pool
