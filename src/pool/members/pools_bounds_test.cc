// How many pools, and ends of steps, a user may have, and which pools make room for others.
#include <gtest/gtest.h>

#include <algorithm>

#include "pool/members/pools.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/pool_messages.h"

namespace offpath::pool {
namespace {

using wire::EntryKind;

constexpr service::ChannelNumber program = 1, member = 2;
constexpr uid_t user = 1000;

class FewPools : public ::testing::Test {
 protected:
  static PoolsOptions few() {
    PoolsOptions made;
    made.table.user_pools_max = 3;
    made.table.user_steps_max = 4;
    return made;
  }
  Status admit_and_leave(const std::string& pool, uid_t who = user) {
    OFP_ASSIGN(const std::string name, few_.admit(pool, who, effects_));
    few_.leave(name);
    return {};
  }
  Status put_there(const std::string& pool) {
    OFP_ASSIGN(const std::string name, few_.admit(pool, user, effects_));
    auto stored = few_.put({name, "r", "c", user, 0, false}, frame_of(8), 5, now_, effects_);
    few_.leave(name);
    return stored.map([](mover::Stored) {});
  }
  [[nodiscard]] bool there(const std::string& name) const {
    return std::ranges::any_of(few_.pools(), [&](const auto& pool) { return pool.name == name; });
  }
  void make_time_pass() { few_.on_time(now_ += 2 * second_ns, effects_); }
  FramePtr frame_of(std::size_t bytes) {
    auto frame = std::make_shared<service::Frame>();
    frame->buffer = *cache_->take(bytes, user);
    frame->bytes = bytes;
    return frame;
  }
  std::shared_ptr<service::BufferCache> cache_ = service::BufferCache::make({});
  Pools few_{few(), cache_, [](std::uint64_t) { return true; }};
  Effects effects_;
  TimeNs now_ = second_ns;
};

TEST_F(FewPools, AUserHasSoManyAndAnotherItsOwn) {
  few_.set_self("a", 7);
  for (const char* name : {"local:/1", "local:/2", "local:/3"}) ASSERT_TRUE(put_there(name));
  const Status fourth = put_there("local:/4");
  ASSERT_FALSE(fourth);
  EXPECT_EQ(fourth.error().code, Error::too_large);
  EXPECT_NE(
      fourth.error().message.find("user 1000 has 3 pools, which is the limit of each user (limits.user_pools_max)"),
      std::string::npos)
      << fourth.error().message;
  EXPECT_TRUE(admit_and_leave("local:/4", 1001));
  EXPECT_TRUE(put_there("local:/2")) << "it is there";
}

TEST_F(FewPools, OnesThatAreEmptyAndNotInUseMakeRoom) {
  few_.set_self("a", 7);
  ASSERT_TRUE(put_there("local:/full"));
  ASSERT_TRUE(few_.admit("local:/open", user, effects_));  // a stream
  ASSERT_TRUE(admit_and_leave("local:/empty?overwrite=no"));
  EXPECT_TRUE(there("local:/empty")) << "while there is room its options stay";
  ASSERT_TRUE(admit_and_leave("local:/plain"));
  EXPECT_FALSE(there("local:/empty"));
  ASSERT_TRUE(admit_and_leave("local:/other?overwrite=no"));
  EXPECT_FALSE(there("local:/plain"));
  EXPECT_TRUE(there("local:/full") && there("local:/open"));
  EXPECT_TRUE(few_.make("local:/configured", user, effects_));
  EXPECT_EQ(admit_and_leave("local:/more").error().code, Error::too_large) << "what is configured stays";
  few_.leave("local:/open");
  EXPECT_FALSE(admit_and_leave("local:/more")) << "it was looked a moment ago";
  make_time_pass();
  EXPECT_TRUE(admit_and_leave("local:/more"));
}

TEST_F(FewPools, OneThatOtherMembersHaveGoesOnlyWhenAllOfItWasDropped) {
  few_.set_self("a", 7);
  few_.on_channel_open(program, user);
  few_.on_members({"a", "b"}, {}, now_, effects_);
  for (const char* name : {"hash:/1?replicas=2", "hash:/2", "hash:/3"}) ASSERT_TRUE(admit_and_leave(name));
  // Until the other members know the pools; here they do not answer.
  for (int i = 0; i < 40; ++i) make_time_pass();
  EXPECT_EQ(admit_and_leave("hash:/4").error().code, Error::too_large) << "member b may have rows of them";
  std::vector<std::byte> payload;
  wire::encode(wire::PeerDrop{user, "hash:/2", "*", "*"}, payload);
  few_.on_peer_request(member, {1, static_cast<std::uint8_t>(EntryKind::peer_drop), payload}, true, now_, effects_);
  make_time_pass();
  EXPECT_TRUE(admit_and_leave("hash:/4"));
  EXPECT_FALSE(there("hash:/2"));
}

TEST_F(FewPools, StepsThatWaitForRanksAreBoundedForEachUserAndGoWithTheirRows) {
  few_.set_self("a", 7);
  ASSERT_TRUE(few_.admit("local:/p", user, effects_));
  ASSERT_TRUE(few_.admit("local:/q", 1001, effects_));
  const auto end = [&](const std::string& pool, const std::string& row, std::uint32_t rank, std::uint32_t ranks) {
    return few_.end_step(pool, row, rank, ranks, now_, effects_);
  };
  for (const char* row : {"1", "2", "3"}) ASSERT_TRUE(end("local:/p", row, 0, 2));
  ASSERT_TRUE(end("local:/p", "3", 0, 2)) << "said twice, it counts once";
  ASSERT_TRUE(end("local:/p", "4", 0, 3));
  const Status fifth = end("local:/p", "5", 0, 2);
  ASSERT_FALSE(fifth);
  EXPECT_EQ(fifth.error().code, Error::too_large);
  EXPECT_NE(
      fifth.error().message.find(
          "4 ends of steps of user 1000 wait for other ranks, which is the limit of each user (limits.user_steps_max)"),
      std::string::npos)
      << fifth.error().message;
  EXPECT_FALSE(end("local:/p", "4", 1, 3)) << "the third rank is still missing";
  EXPECT_TRUE(end("local:/p", "3", 1, 2)) << "it ends the step";
  EXPECT_TRUE(end("local:/p", "whole", 0, 1));
  EXPECT_TRUE(end("local:/q", "1", 0, 2)) << "another user's";
  EXPECT_TRUE(end("local:/p", "5", 0, 2));
  EXPECT_FALSE(end("local:/p", "6", 0, 2));
  few_.on_channel_open(program, user);
  std::vector<std::byte> payload;
  wire::encode(wire::PoolDrop{"local:/p", "[14]", "*"}, payload);
  few_.on_request(program, {1, static_cast<std::uint8_t>(EntryKind::pool_drop), payload}, now_, effects_);
  EXPECT_TRUE(end("local:/p", "6", 0, 2));
  EXPECT_TRUE(end("local:/p", "7", 0, 2));
  EXPECT_FALSE(end("local:/p", "8", 0, 2));
}

TEST_F(FewPools, KeysOfStepsThatWaitForRanksAreBounded) {
  PoolsOptions options;
  options.table.waiting_key_bytes_max = 1000;
  Pools pools(options, cache_, [](std::uint64_t) { return true; });
  ASSERT_TRUE(pools.admit("local:/p", user, effects_));
  ASSERT_TRUE(pools.end_step("local:/p", std::string(600, 'a'), 0, 2, now_, effects_));
  EXPECT_EQ(pools.end_step("local:/p", std::string(600, 'b'), 0, 2, now_, effects_).error().code, Error::too_large);
  ASSERT_TRUE(pools.end_step("local:/p", std::string(600, 'a'), 1, 2, now_, effects_));
  EXPECT_TRUE(pools.end_step("local:/p", std::string(600, 'b'), 0, 2, now_, effects_));
}

TEST_F(FewPools, EndsOfStepsOnTheirWayToOtherMembersAreBoundedToo) {
  few_.set_self("a", 7);
  few_.on_members({"a", "b"}, {}, now_, effects_);
  ASSERT_TRUE(few_.admit("hash:/p?members=b", user, effects_));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(few_.end_step("hash:/p", std::to_string(i), 0, 2, now_, effects_));
  EXPECT_EQ(few_.end_step("hash:/p", "4", 0, 2, now_, effects_).error().code, Error::too_large);
  for (int i = 0; i < 40; ++i) make_time_pass();
  EXPECT_TRUE(few_.end_step("hash:/p", "4", 0, 2, now_, effects_)) << "those before have failed by then";
}

}  // namespace
}  // namespace offpath::pool
