// One agent's pools after members have changed: comparisons, moves, removals, drops.
#include <algorithm>
#include <functional>

#include "pool/directory/placement.h"
#include "testing/pool/one_member.h"

namespace offpath::pool {
namespace {

using wire::EntryKind;

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

// Members a to f, of which b is asked by "a"'s program for row r, without waiting.
class GetsWhileRowsSettle : public PoolsTest {
 protected:
  void begin() {
    ASSERT_TRUE(pools_.admit("hash:/p?replicas=2", user, effects_));
    pools_.on_members({"a", "b", "c"}, {}, now_, effects_);
    pools_.on_members({"a", "b", "c", "d", "e", "f"}, {}, now_, effects_);
    effects_.clear();
  }
  // Answers each request of the get until it is over; returns the asked members in order. Calls `says_no` before each
  // answer.
  std::vector<std::string> asked_members(const std::function<bool(const std::string&)>& says_no) {
    ask(program, EntryKind::pool_get, wire::PoolGet{"hash:/p", "r", "c", 0});
    std::vector<std::string> members;
    while (const auto asked = take<service::AskEffect>()) {
      EXPECT_EQ(asked->kind, EntryKind::peer_get);
      members.push_back(asked->member);
      if (says_no(asked->member)) {
        pools_.on_answer(asked->token, fail(Error::not_found, "none here"), now_, effects_);
      } else {
        Answer answer{wire::ReplyKind::got};
        wire::encode(wire::Got{.how = wire::Got::How::pushed, .arrow = false, .lease = 0, .length = 0, .rows = 0},
                     answer.payload);
        pools_.on_answer(asked->token, std::move(answer), now_, effects_);
      }
    }
    return members;
  }
  std::vector<std::string> owners() {
    return owners_of(Policy::hash, 2, "r", std::vector<std::string>{"a", "b", "c", "d", "e", "f"});
  }
};

TEST_F(GetsWhileRowsSettle, AllMembersAreAskedBeforeAGetSaysNo) {
  begin();
  std::vector<std::string> members = asked_members([](const std::string&) { return true; });
  std::ranges::sort(members);
  members.erase(std::unique(members.begin(), members.end()), members.end());
  EXPECT_EQ(members, (std::vector<std::string>{"b", "c", "d", "e", "f"}));
}

TEST_F(GetsWhileRowsSettle, ARowThatMovesToItsOwnerMeanwhileIsFound) {
  begin();
  const std::vector<std::string> of_row = owners();
  ASSERT_EQ(std::ranges::count(of_row, "a"), 0) << "the test needs a row of others";
  std::string last;
  std::size_t asked = 0;
  // Each says no at first: the row moves to its next owner before each question.
  const std::vector<std::string> members = asked_members([&](const std::string& member) {
    last = member;
    return ++asked <= 5;
  });
  EXPECT_EQ(members.size(), 6u);
  EXPECT_EQ(last, of_row.front()) << "the owners are asked once more";
}

TEST_F(GetsWhileRowsSettle, OwnersAloneAreAskedWhenRowsHaveSettled) {
  begin();
  now_ += 60 * second_ns;
  for (int i = 0; i < 4; ++i) {
    pools_.on_time(now_, effects_);
    effects_.clear();
  }
  ASSERT_EQ(pools_.counters().comparisons_waiting, 0u);
  const std::vector<std::string> members = asked_members([](const std::string&) { return true; });
  EXPECT_LE(members.size(), 4u) << "those of now and of before the last change, once";
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
  // A move that has ended is remembered as long as a drop may be on its way, and is followed once.
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

}  // namespace
}  // namespace offpath::pool
