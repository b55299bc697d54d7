// Requests that wait, here and for other members: each user has a limit, and other users pay nothing for them.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/log.h"
#include "pool/members/pools.h"
#include "testing/cpu_time.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"

namespace offpath::pool {
namespace {

using wire::EntryKind;

constexpr service::ChannelNumber program = 1, neighbour = 3;
constexpr uid_t user = 1000, neighbour_user = 1001;

class FewWaits : public ::testing::Test {
 protected:
  static PoolsOptions few() {
    PoolsOptions made;
    made.table.waiting_max = 12;
    made.table.user_waiting_max = 4;
    made.table.waiting_key_bytes_max = 12'000;
    return made;
  }
  FewWaits() {
    few_.set_self("a", 7);
    few_.on_channel_open(program, user);
    few_.on_channel_open(neighbour, neighbour_user);
    few_.on_members({"a", "b"}, {}, now_, effects_);
    for (const auto& [pool, who] :
         {std::pair("hash:/p?members=b", user), std::pair("hash:/n?members=b", neighbour_user)})
      EXPECT_TRUE(few_.admit(pool, who, effects_));
    effects_.clear();
  }
  // The reason of a refusal; empty: the request waits. `asked_` is the last request to the member.
  template <class Message>
  std::string refusal(EntryKind kind, const Message& message, service::ChannelNumber channel = program) {
    effects_.clear();
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    few_.on_request(channel, {++ticket_, static_cast<std::uint8_t>(kind), payload}, now_, effects_);
    std::string why;
    for (const service::Effect& effect : effects_) {
      if (const auto* failed = std::get_if<service::FailEffect>(&effect)) why = failed->failure.message;
      if (const auto* asked = std::get_if<service::AskEffect>(&effect)) asked_ = asked->token;
    }
    return why;
  }
  std::string want(const std::string& pool, const std::string& row = "r", service::ChannelNumber channel = program) {
    return refusal(EntryKind::pool_get, wire::PoolGet{pool, row, "c", -1}, channel);
  }

  static constexpr const char* full =
      "4 requests of user 1000 are waiting, which is the limit of each user (limits.user_waiting_max)";
  Pools few_{few(), service::BufferCache::make({}), [](std::uint64_t) { return true; }};
  Effects effects_;
  TimeNs now_ = second_ns;
  std::uint64_t ticket_ = 0, asked_ = 0;
};

TEST_F(FewWaits, AUserHasOneAccountForAllPlacesAndAnotherItsOwn) {
  EXPECT_EQ(want("local:/here"), "");
  EXPECT_EQ(want("hash:/nobody-makes-it"), "");
  EXPECT_EQ(refusal(EntryKind::pool_list, wire::PoolList{"hash:/p", "*", "*", 0}), "");
  const std::uint64_t list = asked_;
  EXPECT_EQ(want("hash:/p"), "");
  const std::uint64_t get = asked_, get_ticket = ticket_;
  for (const std::string pool : {"local:/here", "hash:/p", "hash:/nobody-makes-it"}) EXPECT_EQ(want(pool), full);
  EXPECT_EQ(refusal(EntryKind::pool_list, wire::PoolList{"hash:/p", "*", "*", 0}), full);
  EXPECT_EQ(refusal(EntryKind::pool_drop, wire::PoolDrop{"hash:/p", "*", "*"}), full);
  for (const std::string pool : {"local:/theirs", "hash:/n", "hash:/theirs", "hash:/n"})
    EXPECT_EQ(want(pool, "r", neighbour), "") << "another user has its own";
  // A request that has ended makes room; if another member was asked, after its answer.
  few_.on_answer(list, fail(Error::timeout, "no answer"), now_, effects_);
  EXPECT_EQ(want("hash:/p"), "");
  EXPECT_EQ(want("hash:/p"), full);
  EXPECT_NE(refusal(EntryKind::pool_cancel, wire::PoolCancel{get_ticket}), "");
  const std::uint64_t cancel = asked_;
  EXPECT_NE(cancel, get);
  EXPECT_EQ(want("hash:/p"), full) << "its request still lies in the other member's ring";
  few_.on_answer(get, fail(Error::cancelled, "not wanted"), now_, effects_);
  EXPECT_EQ(want("hash:/p"), full);
  Answer told{wire::ReplyKind::done};
  wire::encode(wire::Done{0}, told.payload);
  few_.on_answer(cancel, std::move(told), now_, effects_);
  EXPECT_EQ(want("hash:/p"), "");
  few_.on_channel_closed(neighbour, now_, effects_);
  EXPECT_EQ(want("local:/here"), full) << "another user's requests are over";
}

TEST_F(FewWaits, AllUsersTogetherHaveALimitToo) {
  for (uid_t each = 2000; each < 2003; ++each) {
    few_.on_channel_open(each, each);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(want("hash:/none", std::to_string(i), each), "");
  }
  EXPECT_EQ(want("hash:/p"), "12 requests are waiting for objects, which is the limit (limits.waiting_max)");
}

TEST_F(FewWaits, KeysOfRequestsToOtherMembersAreBounded) {
  const std::string key(2100, 'k');
  EXPECT_EQ(want("hash:/p", key), "");
  EXPECT_EQ(want("hash:/none", key),
            "requests of user 1000 that wait would have keys of 4202 bytes, at most 4000 are allowed to each user "
            "(limits.user_waiting_max)");
  EXPECT_EQ(want("hash:/n", key, neighbour), "");
  EXPECT_EQ(want("hash:/p", "short"), "");
}

TEST_F(FewWaits, KeysOfStepsOnTheirWayToOtherMembersAreBounded) {
  EXPECT_TRUE(few_.end_step("hash:/p", std::string(7000, 's'), 0, 2, now_, effects_));
  const Status more = few_.end_step("hash:/p", std::string(7000, 't'), 0, 2, now_, effects_);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().message,
            "ends of steps of user 1000 that are on their way to other members have keys of 14000 bytes, at most 12000 "
            "are allowed");
}

// Rounds, cancels and new pools take as long with tens of thousands of waiting requests as with a few.
TEST(PoolsWaits, WhoWaitsForOtherMembersSlowsNobodyDown) {
  Pools pools{PoolsOptions{}, service::BufferCache::make({}), [](std::uint64_t) { return true; }};
  Effects effects;
  TimeNs now = second_ns;
  std::uint64_t ticket = 0;
  pools.set_self("a", 7);
  pools.on_channel_open(program, user);
  const auto ask = [&](EntryKind kind, const auto& message) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    pools.on_request(program, {++ticket, static_cast<std::uint8_t>(kind), payload}, now, effects);
    effects.clear();
    return ticket;
  };
  pools.on_members({"a", "b"}, {}, now, effects);
  ASSERT_TRUE(pools.admit("hash:/p?members=b", user, effects));
  const auto want = [&](int row) {
    const char* const pool = row % 3 == 0 ? "local:/here" : row % 3 == 1 ? "hash:/p" : "hash:/nobody-makes-it";
    if (row % 3 == 0) {
      EXPECT_TRUE(pools.end_step("hash:/p", std::to_string(row), 0, 2, now, effects));
    }
    return ask(EntryKind::pool_get, wire::PoolGet{pool, std::to_string(row), "c", 100 * second_ns});
  };
  std::vector<TimeNs> took;
  const auto rounds_take = [&] {
    took.push_back(least_cpu_ns([&] {
      for (int i = 0; i < 100; ++i) {
        pools.on_time(now, effects);
        EXPECT_GT(pools.next_deadline(), now);
        ask(EntryKind::pool_cancel, wire::PoolCancel{want(100'000 + i)});
      }
    }));
  };
  for (int row = 0; row < 12; ++row) want(row);
  rounds_take();
  for (int row = 12; row < 48'000; ++row) want(row);
  rounds_take();
  EXPECT_EQ(pools.table().counters().waiting, 16'000u);
  EXPECT_LT(took[1], 20 * took[0]) << "of 100 rounds, with 48,000 that wait and with 12";
  now += 200 * second_ns;
  pools.on_time(now, effects);
  std::size_t failed = 0;
  for (const service::Effect& effect : effects) failed += std::get_if<service::FailEffect>(&effect) != nullptr ? 1 : 0;
  EXPECT_EQ(failed, 32'000u) << "those that wait here and for the pool; the member answers for the others";
  EXPECT_EQ(pools.table().counters().waiting, 0u);
}

// Puts into pools whose budgets are full.
class BudgetWaits : public ::testing::Test {
 protected:
  static PoolsOptions options() {
    PoolsOptions made;
    made.table.key_bytes_max = 1 << 20;
    return made;
  }
  BudgetWaits() {
    pools_.set_self("a", 7);
    pools_.on_channel_open(program, user);
    for (const char* const pool : {"local:/full?budget=1000", "local:/p?budget=1000"})
      EXPECT_TRUE(pools_.admit(pool, user, effects_));
  }
  mover::Stored put(const std::string& pool, const std::string& row, std::size_t bytes) {
    auto frame = std::make_shared<service::Frame>();
    frame->buffer = *cache_->take(bytes, user);
    frame->bytes = bytes;
    return pools_.put({pool, row, "c", user, 0, false}, std::move(frame), ++token_, now_, effects_).value();
  }
  void drop(const std::string& pool, const std::string& row) {
    std::vector<std::byte> payload;
    wire::encode(wire::PoolDrop{pool, row, "*"}, payload);
    pools_.on_request(program, {++ticket_, static_cast<std::uint8_t>(EntryKind::pool_drop), payload}, now_, effects_);
  }
  std::size_t stored() {
    std::size_t count = 0;
    for (const service::Effect& effect : std::exchange(effects_, {}))
      count += std::holds_alternative<service::StoredEffect>(effect) ? 1 : 0;
    return count;
  }

  std::shared_ptr<service::BufferCache> cache_ = service::BufferCache::make({});
  Pools pools_{options(), cache_, [](std::uint64_t) { return true; }};
  Effects effects_;
  TimeNs now_ = second_ns;
  std::uint64_t ticket_ = 0, token_ = 0;
};

TEST_F(BudgetWaits, WhatBecomesFreeInOnePoolCostsNothingForThoseWhoWaitForAnother) {
  ASSERT_EQ(put("local:/full", "first", 1000), mover::Stored::now);
  std::vector<TimeNs> took;
  int waiting = 0;
  for (const int more : {12, 20'000}) {
    for (int i = 0; i < more; ++i) ASSERT_EQ(put("local:/full", std::to_string(++waiting), 10), mover::Stored::later);
    took.push_back(least_cpu_ns([&] {
      for (int i = 0; i < 20; ++i) {
        ASSERT_EQ(put("local:/p", "r", 1000), mover::Stored::now);
        ASSERT_EQ(put("local:/p", "s", 1), mover::Stored::later);
        drop("local:/p", "r");
        pools_.on_time(now_, effects_);
        ASSERT_EQ(stored(), 1u);
        drop("local:/p", "s");
        pools_.on_time(now_, effects_);
      }
    }));
  }
  EXPECT_LT(took[1], 20 * took[0]) << "of 20 rounds, with 20,012 that wait and with 12";
  drop("local:/full", "first");
  pools_.on_time(now_, effects_);
  EXPECT_EQ(stored(), 100u);
}

// Keys are counted over all pools.
TEST_F(BudgetWaits, APutThatWaitsForRoomForItsKeysGoesOnWhenKeysOfAnyPoolGo) {
  const std::string key(600 << 10, 'k');
  ASSERT_EQ(put("local:/p", key, 1), mover::Stored::now);
  ASSERT_EQ(put("local:/full", key, 1), mover::Stored::later);
  drop("local:/p", "k*");
  EXPECT_LE(pools_.next_deadline(), now_);
  pools_.on_time(now_, effects_);
  EXPECT_EQ(stored(), 1u);
}

TEST(WaitingPuts, AreNamedWithTheMembersThatLackThem) {
  Pools pools({}, service::BufferCache::make({}), [](std::uint64_t) { return true; });
  Effects effects;
  pools.set_self("a", 7);
  pools.on_members({"a", "b", "c"}, {}, second_ns, effects);
  ASSERT_TRUE(pools.admit("hash:/p?members=b", user, effects));
  const auto put = [&](const std::string& row, TimeNs now) {
    ASSERT_TRUE(pools.put({"hash:/p", row, "c", user, 0, false}, std::make_shared<service::Frame>(), 5, now, effects));
  };
  static std::vector<std::string> lines;
  lines.clear();
  set_log(LogLevel::warning, [](LogLevel, std::string_view line, void*) { lines.emplace_back(line); }, nullptr);
  put("step7", second_ns);
  EXPECT_EQ(pools.waiting_puts(second_ns).count, 0u) << "it is on its way";
  EXPECT_LE(pools.next_deadline(), 2 * second_ns);
  pools.on_time(2 * second_ns, effects);
  const WaitingPuts waiting = pools.waiting_puts(2 * second_ns);
  ASSERT_EQ(waiting.count, 1u);
  EXPECT_EQ(waiting.longest[0].pool, "hash:/p");
  EXPECT_EQ(waiting.longest[0].row, "step7");
  EXPECT_EQ(waiting.longest[0].members, std::vector<std::string>{"b"});
  EXPECT_EQ(waiting.longest[0].since, second_ns);
  const std::string why = pools.why_waits(5);
  EXPECT_TRUE(why.starts_with("pool \"hash:/p?members=b\": the put of (step7, c) waits for members b: ")) << why;
  EXPECT_TRUE(why.ends_with(". It fails after 30s")) << why;
  EXPECT_EQ(pools.why_waits(6), "");
  for (int i = 0; i < 100; ++i) put(std::to_string(i), 2 * second_ns);
  for (int i = 0; i < 50; ++i) pools.on_time(3 * second_ns + i * 100 * millisecond_ns, effects);
  ASSERT_EQ(lines.size(), 1u) << "later ones are told of later";
  EXPECT_TRUE(lines[0].starts_with("pool \"hash:/p\": a put of (step7, c) has waited 1 s for members b: ")) << lines[0];
  EXPECT_EQ(pools.waiting_puts(4 * second_ns).count, 101u);
  EXPECT_EQ(pools.waiting_puts(4 * second_ns).longest.size(), WaitingPuts::listed_max);
  pools.on_time(12 * second_ns, effects);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(lines[1].ends_with("; 101 puts wait in all")) << lines[1];
  set_log(LogLevel::warning, nullptr, nullptr);
}

// In the table, at a member that was asked, and for a pool that does not exist.
TEST_F(FewWaits, GetsAreListedOnceTheyHaveWaitedForASecond) {
  EXPECT_EQ(want("local:/here", "late"), "");
  now_ += second_ns;
  EXPECT_EQ(want("hash:/p", "away"), "");
  EXPECT_EQ(want("hash:/nobody-makes-it", "never"), "");
  EXPECT_EQ(want("local:/theirs", "r", neighbour), "");
  const ListedGets one = few_.waiting_gets(now_);
  ASSERT_EQ(one.count, 1u) << "the others are on their way";
  EXPECT_EQ(one.longest.at(0).why, "there is no pool \"local:/here\"");
  EXPECT_EQ(one.longest[0].what, "the object");
  EXPECT_EQ(one.longest[0].since, second_ns);
  EXPECT_EQ(one.longest[0].channel, program);
  now_ += second_ns;
  const ListedGets all = few_.waiting_gets(now_);
  ASSERT_EQ(all.count, 4u);
  ASSERT_EQ(all.longest.size(), 4u);
  EXPECT_EQ(all.longest[0].row, "late") << "the one that has waited longest";
  const auto at = [&](std::string_view pool) { return *std::ranges::find(all.longest, pool, &ListedGet::pool); };
  EXPECT_EQ(at("hash:/p").why, "member b has been asked for it");
  EXPECT_EQ(at("hash:/p").since, 2 * second_ns);
  EXPECT_EQ(at("hash:/nobody-makes-it").why, "there is no pool \"hash:/nobody-makes-it\"");
  EXPECT_EQ(at("local:/theirs").channel, neighbour);
}

}  // namespace
}  // namespace offpath::pool
