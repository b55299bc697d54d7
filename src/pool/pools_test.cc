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
    wire::PeerPut put{.user = user, .writer = 3, .number = ++ticket_, .rows = 0, .keep = 0, .arrow = false, .hidden = false,
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
  Pools pools_{{}, cache_, [this](std::uint64_t bytes) { return bytes <= room_; }};
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

TEST_F(PoolsTest, ABudgetIsFreeAsSoonAsAnObjectIsDroppedWhoeverReadsIt) {
  const auto name = pools_.admit("local:/p?budget=100", user, effects_);
  ASSERT_TRUE(name) << name.error().message;
  ASSERT_EQ(*put(*name, "first", 80), mover::Stored::now);
  ask(program, EntryKind::pool_get, wire::PoolGet{*name, "first", "c", 0, 0});
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
