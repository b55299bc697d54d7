// Puts to several owners, and the versions of objects there, without gets, moves and Pools.
#include "pool/rows/puts.h"

#include <gtest/gtest.h>

#include "pool/rows/versions.h"
#include "wire/messages/message_kinds.h"

namespace offpath::pool {
namespace {

constexpr uid_t user = 1000;

class PutParts : public ::testing::Test, private Directory::Users, private Puts::Ends {
 protected:
  PutParts() {
    context_.directory.set_self("a");
    context_.directory.change_members({"a", "b", "c"}, 0);
    puts_.set_process(7);
    make("hash:/p?replicas=2&members=b,c");
    make("hash:/here?replicas=2&members=a,b");
  }
  void make(const std::string& text) {
    EXPECT_TRUE(context_.directory.define(text, user, Directory::Access::write, Directory::By::disk, 0, effects_));
  }
  static FramePtr frame() { return std::make_shared<service::Frame>(); }
  static Place place(const std::string& pool) { return {pool, "r", "c", user, 0, false}; }
  // Tokens of the requests since the last call, by member.
  std::map<std::string, std::uint64_t> asked() {
    std::map<std::string, std::uint64_t> tokens;
    for (const service::Effect& effect : effects_)
      if (const auto* ask = std::get_if<service::AskEffect>(&effect)) tokens.emplace(ask->member, ask->token);
    std::erase_if(effects_, [](const auto& each) { return std::holds_alternative<service::AskEffect>(each); });
    return tokens;
  }
  void answer(std::uint64_t token, Result<std::uint64_t> later = 0) {
    const auto node = context_.requests.take(token);
    ASSERT_TRUE(node);
    puts_.on_answer(node.mapped(), std::move(later), now_, effects_);
  }
  // Whether the mover's put is over, and whether it is stored.
  std::optional<bool> stored() {
    for (const service::Effect& effect : effects_)
      if (const auto* over = std::get_if<service::StoredEffect>(&effect)) return static_cast<bool>(over->status);
    return std::nullopt;
  }

  void on_pool_made(const Definition&, uid_t, bool, TimeNs, Effects&) override {}
  void on_pool_gone(const std::string&) override {}
  void add_in_use(std::set<std::string_view>&) const override {}
  [[nodiscard]] bool has_moves(const std::string&) const override { return false; }
  [[nodiscard]] bool is_settling() const override { return false; }
  void on_move_ended(const Put& move, const Status& status, TimeNs, Effects&) override {
    ended_.push_back(move.place.pool + (status ? " moved" : " failed"));
  }
  void on_put_divided(TimeNs) override { ++divided_; }

  Effects effects_;
  TimeNs now_ = second_ns;
  std::vector<std::string> ended_;
  int divided_ = 0;
  PoolContext context_{PoolsOptions{}, *this};
  Removals removals_{context_};
  Versions versions_{context_, removals_};
  Puts puts_{context_, versions_, *this};
};

TEST_F(PutParts, APutIsStoredWhenAllOwnersHaveIt) {
  const auto put = puts_.put(place("hash:/p"), frame(), 5, now_, effects_);
  ASSERT_TRUE(put);
  EXPECT_EQ(*put, mover::Stored::later);
  auto tokens = asked();
  ASSERT_EQ(tokens.size(), 2u);
  answer(tokens["b"]);
  EXPECT_FALSE(stored().has_value());
  answer(tokens["c"]);
  EXPECT_EQ(stored(), true);
  EXPECT_EQ(puts_.size(), 0u);
}

TEST_F(PutParts, AnOwnerThatIsFullIsAskedAgainUntilTheTimeIsOver) {
  ASSERT_TRUE(puts_.put(place("hash:/p"), frame(), 5, now_, effects_));
  auto tokens = asked();
  answer(tokens["b"]);
  answer(tokens["c"], fail(Error::no_memory, "c is full"));
  EXPECT_EQ(puts_.next_due(), now_ + context_.options.retry_ns);
  now_ = puts_.next_due();
  puts_.on_time(now_, effects_);
  tokens = asked();
  ASSERT_EQ(tokens.size(), 1u) << "b has it";
  answer(tokens.at("c"), fail(Error::no_memory, "c is full"));
  now_ += context_.options.put_wait_ns;
  puts_.on_time(now_, effects_);
  EXPECT_EQ(stored(), false);
  EXPECT_EQ(divided_, 1) << "b has it and c has not";
}

TEST_F(PutParts, ALaterObjectOfAnotherMemberHasThePutStampedAgainAtAllOwners) {
  ASSERT_TRUE(puts_.put(place("hash:/p"), frame(), 5, now_, effects_));
  auto tokens = asked();
  answer(tokens["b"]);
  const std::uint64_t later = context_.clock.stamp(now_) + 100;
  answer(tokens["c"], later);
  tokens = asked();
  EXPECT_EQ(tokens.size(), 2u) << "b has it under the earlier stamp";
  EXPECT_GT(context_.clock.stamp(now_), later);
  answer(tokens["b"]);
  answer(tokens["c"]);
  EXPECT_EQ(stored(), true);
}

// A program that knows of it may ask any member.
TEST_F(PutParts, NothingOfANewPoolIsStoredBeforeAllMembersHaveAnsweredThatTheyKnowIt) {
  puts_.define_first("hash:/p", user, {"b", "c"}, now_, effects_);
  const auto told = asked();
  ASSERT_TRUE(puts_.put(place("hash:/p"), frame(), 5, now_, effects_));
  const auto tokens = asked();
  answer(tokens.at("b"));
  answer(tokens.at("c"));
  answer(told.at("b"));
  puts_.on_time(now_, effects_);
  EXPECT_FALSE(stored().has_value());
  now_ += 2 * second_ns;
  const WaitingPut waiting = puts_.waiting(now_).longest.at(0);
  EXPECT_EQ(waiting.why, "pool \"hash:/p\": not all members have confirmed that they know it");
  EXPECT_EQ(waiting.members, std::vector<std::string>{"c"});
  answer(told.at("c"));
  puts_.on_time(now_, effects_);
  EXPECT_EQ(stored(), true);
}

TEST_F(PutParts, AMemberThatCannotBeToldOfAPoolHoldsUpNoPut) {
  puts_.define_first("hash:/p", user, {"b", "c"}, now_, effects_);
  const auto told = asked();
  ASSERT_TRUE(puts_.put(place("hash:/p"), frame(), 5, now_, effects_));
  auto tokens = asked();
  answer(tokens.at("b"));
  answer(tokens.at("c"));
  answer(told.at("b"), fail(Error::timeout, "no answer"));
  context_.directory.change_members({"a", "b"}, 0);
  puts_.on_members({}, now_);
  puts_.on_time(now_, effects_);
  EXPECT_EQ(stored(), true) << "one is silent, the other gone";
  EXPECT_EQ(asked().count("c"), 0u) << "who is gone is told of nothing";
}

TEST_F(PutParts, AMoveIsUnderWayUntilItEndsAndTellsWhatFollowsFromIt) {
  Put move;
  move.place = place("hash:/p");
  move.frame = frame();
  move.moves = true;
  move.owners = {"c"};
  puts_.start(move, now_, effects_);
  EXPECT_EQ(puts_.moves(), 1u);
  EXPECT_EQ(puts_.under_way("hash:/p", "*", "*").size(), 1u);
  EXPECT_TRUE(puts_.under_way("hash:/p", "other", "*").empty());
  EXPECT_TRUE(puts_.any_move("hash:/p", [](const auto& row, const auto& to) { return row == "r" && to.size() == 1; }));
  answer(asked().at("c"));
  EXPECT_EQ(ended_, std::vector<std::string>{"hash:/p moved"});
  EXPECT_EQ(puts_.moves(), 0u);
}

TEST_F(PutParts, AMoveEndsWithTheDeathOfItsOwnerWhenTheOthersHaveAnswered) {
  Put move;
  move.place = place("hash:/p");
  move.frame = frame();
  move.moves = true;
  move.owners = {"b", "c"};
  puts_.start(move, now_, effects_);
  auto tokens = asked();
  context_.directory.change_members({"a", "b"}, now_);
  puts_.on_members({}, now_);
  answer(tokens.at("c"), fail(Error::peer_lost, "c is dead"));
  now_ = puts_.next_due();
  puts_.on_time(now_, effects_);
  EXPECT_TRUE(ended_.empty()) << "b may take it";
  answer(tokens.at("b"));
  EXPECT_EQ(ended_, std::vector<std::string>{"hash:/p failed"}) << "it is planned anew for those that live";
  EXPECT_EQ(puts_.moves(), 0u);
  EXPECT_TRUE(asked().empty()) << "c is not asked again";
}

TEST_F(PutParts, OfTwoVersionsTheLaterStaysWhicheverCameFirst) {
  const Place at = place("hash:/here");
  PutId early{1, 1, 100}, late{2, 1, 200};
  EXPECT_FALSE(versions_.not_wanted(at, late));
  ASSERT_TRUE(versions_.take(at, frame(), late, now_, effects_));
  EXPECT_EQ(versions_.not_wanted(at, early), 200u) << "it is stamped again";
  EXPECT_EQ(versions_.not_wanted(at, late), 0u) << "it is here already";
  PutId moved = early;
  moved.moved = true;
  EXPECT_EQ(versions_.not_wanted(at, moved), 0u) << "a row from before the later put";
  PutId latest{3, 1, 300};
  EXPECT_FALSE(versions_.not_wanted(at, latest));
}

TEST_F(PutParts, AnObjectThatWasForgottenDoesNotComeBackByAMove) {
  removals_.add(*context_.directory.known("hash:/here"), {"r", "c"}, now_, effects_);
  PutId moved{1, 1, 100};
  moved.moved = true;
  EXPECT_EQ(versions_.not_wanted(place("hash:/here"), moved), 0u);
  PutId anew{1, 2, 200};
  EXPECT_FALSE(versions_.not_wanted(place("hash:/here"), anew)) << "a put is wanted";
}

}  // namespace
}  // namespace offpath::pool
