// The pools of one agent by themselves: requests and answers in, effects out. Several agents together:
// tests/sim/pool_sim_test.cc.
#include "pool/members/pools.h"
#include "wire/messages/pool_messages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace offpath::pool {
namespace {

using wire::EntryKind;

constexpr service::ChannelNumber program = 1, member = 2;
constexpr uid_t user = 1000;

class PoolsTest : public ::testing::Test {
 protected:
  PoolsTest() {
    pools_.set_self("a", 7);
    pools_.on_channel_open(program, user);
    pools_.on_channel_open(member, user);
  }
  FramePtr frame_of(std::size_t bytes) {
    auto frame = std::make_shared<service::Frame>();
    frame->buffer = *cache_->take(bytes, user);
    frame->bytes = bytes;
    std::memset(frame->buffer.data(), 'x', bytes);
    return frame;
  }
  Result<mover::Stored> put(const std::string& pool, const std::string& row, std::size_t bytes,
                            std::uint64_t token = 5) {
    return pools_.put({pool, row, "c", user, 0, false}, frame_of(bytes), token, now_, effects_);
  }
  template <class Message>
  void ask(service::ChannelNumber channel, EntryKind kind, const Message& message) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    const channel::Entry entry{++ticket_, static_cast<std::uint8_t>(kind), payload};
    if (channel == member)
      pools_.on_peer_request(channel, entry, true, now_, effects_);
    else
      pools_.on_request(channel, entry, now_, effects_);
  }
  void put_of_member(const std::string& row, std::uint64_t bytes, const std::string& pool = "hash:/p") {
    wire::PeerPut put{.user = user,
                      .owner = user,
                      .writer = 3,
                      .number = ++ticket_,
                      .rows = 0,
                      .keep = 0,
                      .wait_ns = 30 * second_ns,
                      .arrow = false,
                      .hidden = false,
                      .moved = false,
                      .offer = 0,
                      .object = {.region = 1, .generation = 1, .offset = 0, .length = bytes},
                      .pool = pool,
                      .row_key = row,
                      .column_key = "c",
                      .counter = 0,
                      .over = {}};
    ask(member, EntryKind::peer_put, put);
  }
  // Of a put at the member: of that version, which replaced those.
  void put_version(Version version, bool moved, const std::vector<Version>& over = {}) {
    const std::vector<std::byte> encoded = encode_over(over);
    wire::PeerPut put{.user = user,
                      .owner = user,
                      .writer = version.writer,
                      .number = 1,
                      .rows = 0,
                      .keep = 0,
                      .wait_ns = 30 * second_ns,
                      .arrow = false,
                      .hidden = false,
                      .moved = moved,
                      .offer = 0,
                      .object = {.region = 1, .generation = 1, .offset = 0, .length = 64},
                      .pool = "hash:/p",
                      .row_key = "r",
                      .column_key = "c",
                      .counter = version.counter,
                      .over = encoded};
    ask(member, EntryKind::peer_put, put);
  }
  static Answer done(std::uint64_t value) {
    Answer answer{wire::ReplyKind::done};
    wire::encode(wire::Done{value}, answer.payload);
    return answer;
  }
  // It was pulled.
  bool pulled() {
    const auto pull = take<service::PullEffect>();
    if (pull) pools_.on_transfer(pull->token, {}, now_, effects_);
    return pull.has_value();
  }
  std::optional<std::uint64_t> answered() {
    const auto reply = take<service::ReplyEffect>();
    if (!reply) return std::nullopt;
    return std::get<wire::Done>(reply->message).value;
  }
  template <class Message>
  static Message message_of(const service::AskEffect& asked, std::vector<std::byte>& payload) {
    payload.clear();
    asked.compose({}, payload);
    Message message{};
    EXPECT_TRUE(wire::decode(payload, message));
    return message;
  }
  // As many effects of that kind as there are; the last one's copy.
  template <class Effect>
  std::optional<Effect> take() {
    std::optional<Effect> found;
    for (const service::Effect& effect : effects_)
      if (const auto* each = std::get_if<Effect>(&effect)) found = *each;
    effects_.clear();
    return found;
  }

  std::shared_ptr<service::BufferCache> cache_ = service::BufferCache::make({});
  std::uint64_t room_ = UINT64_MAX;
  static PoolsOptions options() {
    PoolsOptions made;
    made.object_bytes_max = 1 << 20;
    made.compare_wait_ns = 60 * second_ns;
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
  // Others are given no memory when the first one goes, so nobody tells: it is looked at all the same.
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

TEST_F(PoolsTest, APutThatNoOwnerCanEverTakeHasFailedWithItsFirstAnswer) {
  ASSERT_TRUE(pools_.admit("hash:/p?members=b", user, effects_));
  pools_.on_members({"a", "b"}, {}, now_, effects_);
  effects_.clear();
  ASSERT_EQ(*put("hash:/p", "r", 64, 9), mover::Stored::later);
  const auto asked = take<service::AskEffect>();
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->member, "b");
  pools_.on_answer(asked->token, fail(Error::too_large, "too large"), now_, effects_);
  const auto stored = take<service::StoredEffect>();
  ASSERT_TRUE(stored);
  EXPECT_EQ(stored->token, 9u);
  EXPECT_EQ(stored->status.error().code, Error::too_large);
}

TEST_F(PoolsTest, APutIsStampedAgainWhereALaterOneIs) {
  ASSERT_TRUE(pools_.admit("hash:/p?members=b", user, effects_));
  pools_.on_members({"a", "b"}, {}, now_, effects_);
  effects_.clear();
  std::vector<std::byte> payload;
  ASSERT_EQ(*put("hash:/p", "r", 64, 9), mover::Stored::later);
  auto asked = take<service::AskEffect>();
  ASSERT_TRUE(asked);
  const std::uint64_t first = message_of<wire::PeerPut>(*asked, payload).counter;
  pools_.on_answer(asked->token, done(first + 1000), now_, effects_);
  EXPECT_FALSE(std::ranges::any_of(
      effects_, [](const service::Effect& each) { return std::holds_alternative<service::StoredEffect>(each); }));
  asked = take<service::AskEffect>();
  ASSERT_TRUE(asked);
  EXPECT_GT(message_of<wire::PeerPut>(*asked, payload).counter, first + 1000);
  pools_.on_answer(asked->token, done(0), now_, effects_);
  const auto stored = take<service::StoredEffect>();
  ASSERT_TRUE(stored);
  EXPECT_TRUE(stored->status);
}

TEST_F(PoolsTest, OfPutsOfTwoSidesOfACutTheLaterStaysAndTheOtherIsCounted) {
  ASSERT_TRUE(pools_.admit("hash:/p", user, effects_));
  pools_.on_members({"a", "b"}, {}, now_, effects_);
  effects_.clear();
  put_version({10, 3}, false);
  ASSERT_TRUE(pulled());
  EXPECT_EQ(answered(), 0u);
  put_version({9, 4}, true);
  EXPECT_EQ(pools_.counters().conflicts, 0u) << "a move of this time brings what was there before";
  pools_.on_members({"a", "b", "c"}, {}, now_, effects_);
  effects_.clear();
  put_version({9, 5}, true);
  EXPECT_EQ(answered(), 0u) << "the earlier one is not pulled";
  EXPECT_EQ(pools_.counters().conflicts, 1u);
  put_version({12, 6}, true);
  ASSERT_TRUE(pulled());
  EXPECT_EQ(answered(), 0u);
  EXPECT_EQ(pools_.counters().conflicts, 2u);
  for (const Version again : {Version{12, 6}, Version{10, 3}, Version{9, 5}}) {
    put_version(again, true);
    EXPECT_EQ(answered(), 0u);
  }
  EXPECT_EQ(pools_.counters().conflicts, 2u) << "each is said once";
  put_version({13, 7}, true, {{12, 6}});
  ASSERT_TRUE(pulled());
  EXPECT_EQ(pools_.counters().conflicts, 2u) << "it replaced the other knowingly";
  effects_.clear();
  put_version({11, 8}, false);
  EXPECT_EQ(answered(), 13u) << "from a program: it is to be stamped again";
  put_version({12, 6}, false);
  EXPECT_EQ(answered(), 0u) << "a late repetition of what was replaced";
  const PutId* const here = pools_.table().id_of("hash:/p", FrameTable::KeysView{"r", "c"});
  ASSERT_NE(here, nullptr);
  EXPECT_EQ(here->version(), (Version{13, 7}));
  put_version({put_counter_max + 1, 9}, false);
  EXPECT_EQ(take<service::FailEffect>()->failure.code, Error::protocol);
}

TEST_F(PoolsTest, FewerCopiesThanMinCopiesAreNotStored) {
  ASSERT_TRUE(pools_.admit("hash:/p?replicas=2&min_copies=2", user, effects_));
  ASSERT_EQ(*put("hash:/p", "r", 64, 9), mover::Stored::later);
  EXPECT_FALSE(take<service::StoredEffect>());
  now_ += 29 * second_ns;
  pools_.on_time(now_, effects_);
  EXPECT_FALSE(take<service::StoredEffect>());
  now_ += second_ns;
  pools_.on_time(now_, effects_);
  const auto failed = take<service::StoredEffect>();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->status.error().code, Error::timeout);
  EXPECT_EQ(
      failed->status.error().message,
      "pool \"hash:/p\": object (r, c) is to have min_copies=2 before it is stored, and 1 of its members live: a");
  // With another member in time it is stored.
  ASSERT_EQ(*put("hash:/p", "s", 64, 10), mover::Stored::later);
  pools_.on_members({"a", "b"}, {}, now_, effects_);
  std::vector<std::uint64_t> tokens;
  for (const service::Effect& each : effects_)
    if (const auto* asked = std::get_if<service::AskEffect>(&each)) tokens.push_back(asked->token);
  effects_.clear();
  for (const std::uint64_t token : tokens) pools_.on_answer(token, done(0), now_, effects_);
  const auto stored = take<service::StoredEffect>();
  ASSERT_TRUE(stored);
  EXPECT_EQ(stored->token, 10u);
  EXPECT_TRUE(stored->status);
}

TEST_F(PoolsTest, AGetThatWaitsAsksAllOwnersBeforeItWaitsAtOne) {
  ASSERT_TRUE(pools_.admit("hash:/p?replicas=2", user, effects_));
  pools_.on_members({"a", "b"}, {}, now_, effects_);
  effects_.clear();
  ask(program, EntryKind::pool_get, wire::PoolGet{"hash:/p", "r", "c", 10 * second_ns});
  std::vector<std::byte> payload;
  auto asked = take<service::AskEffect>();
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->kind, EntryKind::peer_get);
  EXPECT_EQ(message_of<wire::PeerGet>(*asked, payload).wait_ns, 0);
  EXPECT_EQ(pools_.table().counters().waiting, 0u) << "it does not wait here";
  pools_.on_answer(asked->token, fail(Error::not_found, "no"), now_, effects_);
  asked = take<service::AskEffect>();
  EXPECT_EQ(pools_.table().counters().waiting + (asked ? 1 : 0), 1u) << "it waits at the first owner now";
  if (asked) {
    EXPECT_GT(message_of<wire::PeerGet>(*asked, payload).wait_ns, 0);
  }
}

TEST_F(PoolsTest, OwnersCompareWhatTheyHaveAfterMembersHaveChanged) {
  ASSERT_TRUE(pools_.admit("hash:/p?replicas=2", user, effects_));
  pools_.on_members({"a", "b"}, {}, now_, effects_);
  put_version({10, 3}, false);
  ASSERT_TRUE(pulled());
  effects_.clear();
  now_ += 60 * second_ns;
  pools_.on_time(now_, effects_);
  auto asked = take<service::AskEffect>();
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->kind, EntryKind::peer_compare);
  EXPECT_EQ(pools_.counters().comparisons_waiting, 1u);
  pools_.on_answer(asked->token, done(UINT64_MAX), now_, effects_);
  pools_.on_time(now_, effects_);
  asked = take<service::AskEffect>();
  ASSERT_TRUE(asked) << "what differs is offered";
  EXPECT_EQ(asked->kind, EntryKind::peer_put);
  std::vector<std::byte> payload;
  const auto offered = message_of<wire::PeerPut>(*asked, payload);
  EXPECT_TRUE(offered.moved);
  EXPECT_EQ(offered.counter, 10u);
  EXPECT_EQ(offered.writer, 3u) << "it is the same put there";
}

TEST_F(PoolsTest, APutThatFailedAndIsHereIsComparedLater) {
  ASSERT_TRUE(pools_.admit("hash:/p?replicas=2", user, effects_));
  pools_.on_members({"a", "b"}, {}, now_, effects_);
  now_ += 60 * second_ns;
  pools_.on_time(now_, effects_);
  ASSERT_EQ(pools_.counters().comparisons_waiting, 0u) << "there is nothing to be compared";
  effects_.clear();
  ASSERT_EQ(*put("hash:/p", "r", 64), mover::Stored::later);
  const auto asked = take<service::AskEffect>();
  ASSERT_TRUE(asked);
  pools_.on_answer(asked->token, fail(Error::denied, "no"), now_, effects_);
  EXPECT_FALSE(take<service::StoredEffect>()->status);
  EXPECT_EQ(pools_.counters().comparisons_waiting, 1u);
  now_ += 5 * second_ns;
  pools_.on_time(now_, effects_);
  EXPECT_EQ(take<service::AskEffect>()->kind, EntryKind::peer_compare);
}

TEST_F(PoolsTest, AMoveThatFailsIsTriedAgain) {
  ASSERT_TRUE(pools_.admit("hash:/p?replicas=2", user, effects_));
  ASSERT_EQ(*put("hash:/p", "r", 64), mover::Stored::now);
  const auto begin = [&] {
    auto asked = take<service::AskEffect>();
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
  EXPECT_FALSE(take<service::AskEffect>()) << "at once";
  now_ = pools_.next_deadline();
  ASSERT_LT(now_, never);
  pools_.on_time(now_, effects_);
  pools_.on_answer(begin(), done(0), now_, effects_);
  EXPECT_EQ(pools_.counters().moved_rows, 1u);
  EXPECT_EQ(pools_.counters().moves_waiting, 0u);
}

TEST_F(PoolsTest, ARemovalIsAskedForUntilAllWhoMayHaveTheObjectHaveConfirmedIt) {
  pools_.on_members({"a", "b"}, {}, now_, effects_);
  const std::string pool = "hash:/kept";
  ASSERT_TRUE(pools_.open(pool + "?members=a,b&replicas=2", user, now_, effects_));
  const auto asked_to_drop = [&]() -> std::optional<std::uint64_t> {
    std::optional<std::uint64_t> token;
    for (const service::Effect& effect : effects_)
      if (const auto* ask = std::get_if<service::AskEffect>(&effect);
          ask != nullptr && ask->kind == EntryKind::peer_drop) {
        EXPECT_EQ(ask->member, "b");
        token = ask->token;
      }
    effects_.clear();
    return token;
  };
  const auto forget = [&](const std::string& column) {
    effects_.clear();
    pools_.forget(pool, {"row", column}, now_, effects_);
    return asked_to_drop();
  };
  const auto at_its_time = [&] {
    if (pools_.next_deadline() == never) return asked_to_drop();
    now_ = std::max(now_, pools_.next_deadline());
    pools_.on_time(now_, effects_);
    return asked_to_drop();
  };
  std::vector<std::byte> dropped;
  wire::encode(wire::Done{1}, dropped);

  const auto first = forget("lost");
  ASSERT_TRUE(first);
  pools_.on_answer(*first, fail(Error::timeout, "no answer"), now_, effects_);
  EXPECT_EQ(pools_.counters().removals_waiting, 1u);
  const auto again = at_its_time();
  ASSERT_TRUE(again);
  pools_.on_answer(*again, Answer{wire::ReplyKind::done, dropped}, now_, effects_);
  EXPECT_EQ(pools_.counters().removals_waiting, 0u);
  EXPECT_FALSE(at_its_time());

  pools_.on_members({"a"}, {}, now_, effects_);
  EXPECT_FALSE(forget("away")) << "it is away, and has it on its disk";
  EXPECT_FALSE(at_its_time());
  effects_.clear();
  pools_.on_members({"a", "b"}, {"b"}, now_, effects_);
  const auto back = asked_to_drop();
  ASSERT_TRUE(back);
  pools_.on_answer(*back, fail(Error::peer_lost, "gone again"), now_, effects_);
  EXPECT_EQ(pools_.counters().removals_waiting, 1u);
  pools_.keep(
      {pool, "row", "away", user, 0, false}, frame_of(8), [](const Status&, TimeNs, Effects&) {}, now_, effects_);
  EXPECT_EQ(pools_.counters().removals_waiting, 0u) << "what is kept anew is not removed";
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
  EXPECT_LE(pools_.next_deadline(), now_) << "though the memory is its reader's yet";
  pools_.on_time(now_, effects_);
  const auto stored = take<service::StoredEffect>();
  ASSERT_TRUE(stored);
  EXPECT_EQ(stored->token, 11u);
  EXPECT_TRUE(stored->status);
  EXPECT_GT(pools_.next_deadline(), now_);
}

TEST_F(PoolsTest, ADropFollowsARowThatIsOnItsWayAndIsAnsweredWhenItsNewOwnerHasDroppedIt) {
  ASSERT_TRUE(pools_.admit("hash:/p?replicas=2", user, effects_));
  ASSERT_EQ(*put("hash:/p", "r*[x]", 64), mover::Stored::now);
  pools_.on_members({"a", "b"}, {}, now_, effects_);
  const auto move = take<service::AskEffect>();
  ASSERT_TRUE(move);
  EXPECT_EQ(move->kind, EntryKind::peer_put);
  ask(member, EntryKind::peer_drop, wire::PeerDrop{user, "hash:/p", "r*", "*"});
  EXPECT_TRUE(effects_.empty()) << "b may get the row yet";
  const auto end = [&](std::uint64_t token, std::uint64_t dropped) {
    std::vector<std::byte> payload;
    wire::encode(wire::Done{dropped}, payload);
    pools_.on_answer(token, Answer{wire::ReplyKind::done, std::move(payload), {}}, now_, effects_);
  };
  end(move->token, 0);
  auto chase = take<service::AskEffect>();
  ASSERT_TRUE(chase);
  EXPECT_EQ(chase->kind, EntryKind::peer_drop);
  EXPECT_EQ(chase->member, "b");
  std::vector<std::byte> payload;
  chase->compose({}, payload);
  wire::PeerDrop asked{};
  ASSERT_TRUE(wire::decode(payload, asked));
  EXPECT_EQ(asked.row_glob, "r[*][[]x]") << "this row and no other";
  end(chase->token, 1);
  const auto reply = take<service::ReplyEffect>();
  ASSERT_TRUE(reply);
  EXPECT_EQ(std::get<wire::Done>(reply->message).value, 2u)
      << "that of a, which was its first owner, and what b counts";
  // The move has ended: it is remembered as long as a drop may be on its way, and followed once.
  ask(member, EntryKind::peer_drop, wire::PeerDrop{user, "hash:/p", "*", "*"});
  chase = take<service::AskEffect>();
  ASSERT_TRUE(chase);
  pools_.on_answer(chase->token, fail(Error::peer_lost, "connection reset"), now_, effects_);
  EXPECT_EQ(take<service::FailEffect>()->failure.code, Error::peer_lost) << "b may have it";
  ask(member, EntryKind::peer_drop, wire::PeerDrop{user, "hash:/p", "*", "*"});
  EXPECT_TRUE(take<service::ReplyEffect>());
}

TEST_F(PoolsTest, MembersThatWentWithRowsNobodyElseHasAreKnownUntilTheyAreBackOrAllIsDropped) {
  using Names = std::vector<std::string>;
  const auto members = [&](Names alive) {
    pools_.on_members(std::move(alive), {}, now_, effects_);
    effects_.clear();
  };
  members({"a", "b", "c", "d"});
  ASSERT_TRUE(pools_.admit("rank:/one", user, effects_));
  ASSERT_TRUE(pools_.admit("rank:/two?replicas=2", user, effects_));
  effects_.clear();
  EXPECT_EQ(pools_.lost("rank:/one"), Names{});
  members({"a", "b", "c"});
  EXPECT_EQ(pools_.lost("rank:/one?replicas=1"), Names{"d"});
  EXPECT_EQ(pools_.lost("rank:/two"), Names{}) << "its rows have been copied anew";
  members({"a", "c"});
  EXPECT_EQ(pools_.lost("rank:/one"), (Names{"d", "b"}));
  EXPECT_EQ(pools_.lost("rank:/two"), Names{}) << "one after the other";
  members({"a", "b", "c", "d"});
  EXPECT_EQ(pools_.lost("rank:/one"), Names{});
  members({"a", "b"});
  EXPECT_EQ(pools_.lost("rank:/two"), (Names{"c", "d"})) << "two at a time";
  ask(member, EntryKind::peer_drop, wire::PeerDrop{user, "rank:/two", "step1", "*"});
  EXPECT_FALSE(pools_.lost("rank:/two").empty());
  ask(member, EntryKind::peer_drop, wire::PeerDrop{user, "rank:/two", "*", "*"});
  EXPECT_EQ(pools_.lost("rank:/two"), Names{});
}

TEST_F(PoolsTest, AGetThatIsCancelledWaitsNeitherHereNorAtItsOwner) {
  ASSERT_TRUE(pools_.admit("local:/p", user, effects_));
  ask(program, EntryKind::pool_get, wire::PoolGet{"local:/p", "r", "c", -1});
  const std::uint64_t here = ticket_;
  EXPECT_EQ(pools_.table().counters().waiting, 1u);
  ask(program, EntryKind::pool_cancel, wire::PoolCancel{here + 100});
  EXPECT_EQ(pools_.table().counters().waiting, 1u);
  ask(program, EntryKind::pool_cancel, wire::PoolCancel{here});
  EXPECT_EQ(pools_.table().counters().waiting, 0u);
  const auto failed = take<service::FailEffect>();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->ticket, here);
  EXPECT_EQ(failed->failure.code, Error::cancelled);
  // At an owner: it is told, and what it answers then is nobody's.
  pools_.on_members({"a", "b"}, {}, now_, effects_);
  ASSERT_TRUE(pools_.admit("hash:/p?members=b", user, effects_));
  effects_.clear();
  ask(program, EntryKind::pool_get, wire::PoolGet{"hash:/p", "r", "c", -1});
  const std::uint64_t there = ticket_;
  const auto asked = take<service::AskEffect>();
  ASSERT_TRUE(asked);
  ask(program, EntryKind::pool_cancel, wire::PoolCancel{there});
  std::vector<std::byte> payload;
  for (const service::Effect& effect : effects_)
    if (const auto* told = std::get_if<service::AskEffect>(&effect)) told->compose({}, payload);
  wire::PeerCancel cancel{};
  ASSERT_TRUE(wire::decode(payload, cancel));
  EXPECT_EQ(cancel.what, wire::PeerCancel::What::get);
  EXPECT_TRUE(take<service::FailEffect>());
  pools_.on_answer(asked->token, fail(Error::cancelled, "not wanted"), now_, effects_);
  EXPECT_TRUE(effects_.empty());
}

TEST_F(PoolsTest, PoolsInWhichServicesKeepTheirObjectsAreNotForPrograms) {
  for (const std::string pool :
       {"local:/t.kept-0badcafe", "hash:/t.kept-0badcafe?members=a&replicas=2", "local:/t.kept-"}) {
    SCOPED_TRACE(pool);
    const auto refused = [&](const auto& result) {
      return !result && result.error().code == Error::denied &&
             result.error().message.find(".kept-") != std::string::npos;
    };
    EXPECT_TRUE(refused(pools_.admit(pool, user, effects_)));
    EXPECT_TRUE(refused(pools_.admit(pool, 0, effects_)))
        << "not for root's programs either: they know nothing of its bytes";
    EXPECT_TRUE(refused(pools_.choose(pool, "*", "*", user)));
    EXPECT_TRUE(refused(pools_.spread(pool)));
    const auto refused_reply = [&] {
      const auto failed = take<service::FailEffect>();
      return failed && failed->failure.code == Error::denied;
    };
    ask(program, EntryKind::pool_get, wire::PoolGet{.pool = pool, .row_key = "a", .column_key = "pool", .wait_ns = 0});
    EXPECT_TRUE(refused_reply());
    ask(program, EntryKind::pool_list, wire::PoolList{pool, "*", "*", 0});
    EXPECT_TRUE(refused_reply());
    ask(program, EntryKind::pool_drop, wire::PoolDrop{pool, "*", "*"});
    EXPECT_TRUE(refused_reply());
    ask(program, EntryKind::pool_write, wire::PoolWrite{.pool = pool, .offer = 1});
    EXPECT_TRUE(refused_reply());
    wire::PoolCompute compute{};
    compute.pool = pool;
    compute.row_key = "a";
    ask(program, EntryKind::pool_compute, compute);
    EXPECT_TRUE(refused_reply());
    ask(member, EntryKind::peer_step_end, wire::PeerStepEnd{user, 0, 1, pool, "a"});
    EXPECT_TRUE(refused_reply()) << "no service ends steps: a member passes on what a program asked";
    wire::PeerCompute passed_on{};
    passed_on.user = user;
    passed_on.pool = pool;
    ask(member, EntryKind::peer_compute, passed_on);
    EXPECT_TRUE(refused_reply());
    EXPECT_EQ(
        pools_.choose_part({.pool = pool, .row_glob = "*", .column_glob = "*", .user = user}, effects_).error().code,
        Error::denied);
    EXPECT_TRUE(pools_.pools().empty());
  }
  EXPECT_TRUE(pools_.open("local:/t.kept-0badcafe", user, now_, effects_)) << "a service has its own";
}

TEST_F(PoolsTest, AMemberNamesNoPoolOfThisAgentAlone) {
  ASSERT_TRUE(pools_.admit("local:/p", user, effects_));
  ASSERT_EQ(*put("local:/p", "r", 64), mover::Stored::now);
  const auto denied = [&] {
    const auto failed = take<service::FailEffect>();
    return failed && failed->failure.code == Error::denied;
  };
  put_of_member("r", 64, "local:/p");
  EXPECT_TRUE(denied());
  ask(member, EntryKind::peer_get, wire::PeerGet{0, 0, 0, 1, {}, "b", "local:/p", "r", "c"});
  EXPECT_TRUE(denied());
  ask(member, EntryKind::peer_drop, wire::PeerDrop{0, "local:/p", "*", "*"});
  EXPECT_TRUE(denied());
  ask(member, EntryKind::peer_define, wire::PeerDefine{0, "local:/other"});
  EXPECT_TRUE(denied());
  EXPECT_TRUE(pools_.find("local:/p", "r", "c", user)) << "it is as it was";
}

TEST_F(PoolsTest, OptionsAreToldToWhomMayUseThePool) {
  ASSERT_TRUE(pools_.admit("hash:/p?replicas=2&readers=1001", user, effects_));
  const auto said = [&](uid_t who) { return pools_.admit("hash:/p?replicas=3", who, effects_).error().message; };
  EXPECT_NE(said(user).find("replicas=2"), std::string::npos);
  EXPECT_NE(said(1001).find("replicas=2"), std::string::npos);
  EXPECT_EQ(said(1002).find("replicas=2"), std::string::npos) << said(1002);
}

TEST_F(PoolsTest, AKnownPoolIsGivenOnlyToWhomMayUseIt) {
  constexpr uid_t other = 1001;
  ASSERT_TRUE(pools_.admit("hash:/p?readers=7", user, effects_));
  EXPECT_EQ(pools_.open("hash:/p", other, now_, effects_).error().code, Error::denied);
  ask(member, EntryKind::peer_define, wire::PeerDefine{other, "hash:/p"});
  auto failed = take<service::FailEffect>();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->failure.code, Error::denied);
  ask(member, EntryKind::peer_step_end, wire::PeerStepEnd{other, 0, 1, "hash:/p", "row"});
  failed = take<service::FailEffect>();
  ASSERT_TRUE(failed) << "it would show what another user hides";
  EXPECT_EQ(failed->failure.code, Error::denied);
  wire::PeerGet get{};
  get.user = 7;
  get.owner = user;
  get.pool = "hash:/p";
  get.row_key = "r";
  ask(member, EntryKind::peer_get, get);
  failed = take<service::FailEffect>();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->failure.code, Error::not_found) << "a reader may look";
  EXPECT_TRUE(pools_.open("hash:/p", 0, now_, effects_));
}

}  // namespace
}  // namespace offpath::pool
