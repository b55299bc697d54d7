// Lists and drops over several members while rows move, without Pools.
#include "pool/peers/gathers.h"

#include <gtest/gtest.h>

#include "pool/peers/listings.h"
#include "pool/peers/removals.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"

namespace offpath::pool {
namespace {

using wire::EntryKind;

constexpr ChannelNumber program = 1;
constexpr uid_t user = 1000;

class Parts : public ::testing::Test, private Directory::Users, private Drops::UnderWay {
 protected:
  Parts() {
    context_.directory.set_self("a");
    context_.directory.change_members({"a", "b", "c"}, 0);
    EXPECT_TRUE(context_.directory.define("hash:/p?members=a,b,c", user, Directory::Access::write, Directory::By::disk,
                                          0, effects_));
  }
  template <class Message>
  void begin(const Message& message, bool drops) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    gathers_.begin(program, user, {++ticket_, 0, payload}, drops, now_, effects_);
  }
  // Members and numbers of the requests since the last call.
  std::map<std::string, std::uint64_t> asked() {
    std::map<std::string, std::uint64_t> members;
    for (const service::Effect& effect : effects_)
      if (const auto* ask = std::get_if<service::AskEffect>(&effect)) {
        EXPECT_TRUE(members.emplace(ask->member, ask->token).second) << "twice";
        kind_ = ask->kind;
      }
    std::erase_if(effects_, [](const auto& each) { return std::holds_alternative<service::AskEffect>(each); });
    return members;
  }
  template <class Message>
  void answer(std::uint64_t token, wire::ReplyKind kind, const Message& message) {
    service::Answer said{};
    said.kind = kind;
    wire::encode(message, said.payload);
    take(token, std::move(said));
  }
  void take(std::uint64_t token, Result<service::Answer> answer) {
    const auto node = context_.requests.take(token);
    ASSERT_TRUE(node);
    const Asking& asking = node.mapped();
    if (asking.kind == Asking::Kind::gather)
      gathers_.on_answer(asking.number, asking.member, std::move(answer), now_, effects_);
    else if (asking.kind == Asking::Kind::follow)
      drops_.on_answer(asking.number, answer, effects_);
    else if (asking.kind == Asking::Kind::listing)
      listings_.on_answer(asking.number, asking.member, std::move(answer), now_, effects_);
    else
      removals_.on_answer(asking, answer ? Status{} : tl::unexpected(answer.error()), now_);
  }
  [[nodiscard]] static wire::Listed one(const char* row, std::uint64_t sequence, bool more = false) {
    wire::Listed listed{};
    listed.entries.push_back({sequence, 10, 1, true, row, "c"});
    listed.more = more;
    return listed;
  }
  // Rows of the reply, or its error; empty without a reply.
  std::vector<std::string> reply() {
    std::vector<std::string> said;
    for (const service::Effect& effect : effects_) {
      if (const auto* listed = std::get_if<service::ListedEffect>(&effect))
        for (const wire::ListedEntry& entry : listed->message.entries) said.emplace_back(entry.row_key);
      if (const auto* done = std::get_if<service::ReplyEffect>(&effect))
        said.push_back(std::to_string(std::get<wire::Done>(done->message).value));
      if (const auto* failed = std::get_if<service::FailEffect>(&effect)) said.push_back(failed->failure.message);
    }
    effects_.clear();
    return said;
  }

  void on_pool_made(const Definition&, uid_t, bool, TimeNs, Effects&) override {}
  void on_pool_gone(const std::string&) override {}
  void add_in_use(std::set<std::string_view>&) const override {}
  [[nodiscard]] bool has_moves(const std::string&) const override { return false; }
  [[nodiscard]] bool is_settling() const override { return false; }
  [[nodiscard]] std::vector<std::uint64_t> under_way(const std::string&, std::string_view,
                                                     std::string_view) const override {
    return moves_;
  }

  using Rows = std::vector<std::string>;
  Effects effects_;
  TimeNs now_ = second_ns;
  std::uint64_t ticket_ = 0;
  std::vector<std::uint64_t> moves_;
  EntryKind kind_{};
  PoolContext context_{PoolsOptions{}, *this};
  Drops drops_{context_, *this};
  Gathers gathers_{context_, drops_};
  Listings listings_{context_};
  Removals removals_{context_};
};

TEST_F(Parts, AListAsksAllMembersPageByPageAndIsSortedByKeys) {
  begin(wire::PoolList{"hash:/p", "*", "*", 0}, false);
  auto members = asked();
  ASSERT_EQ(members.size(), 2u);
  EXPECT_EQ(kind_, EntryKind::peer_list);
  answer(members["b"], wire::ReplyKind::listed, one("z", 1, true));
  const auto page = asked();
  ASSERT_EQ(page.size(), 1u);
  answer(members["c"], wire::ReplyKind::listed, one("m", 1));
  EXPECT_EQ(reply(), Rows{}) << "b has more";
  answer(page.at("b"), wire::ReplyKind::listed, one("a", 2));
  EXPECT_EQ(reply(), (Rows{"a", "m", "z"}));
  EXPECT_EQ(context_.requests.size(), 0u);
}

TEST_F(Parts, AListFailsIfAMemberDoesAndNotIfItKnowsNoSuchPool) {
  begin(wire::PoolList{"hash:/p", "*", "*", 0}, false);
  auto members = asked();
  take(members["b"], fail(Error::not_found, "no pool"));
  answer(members["c"], wire::ReplyKind::listed, one("m", 1));
  EXPECT_EQ(reply(), Rows{"m"});
  begin(wire::PoolList{"hash:/p", "*", "*", 0}, false);
  members = asked();
  take(members["b"], fail(Error::timeout, "b is silent"));
  answer(members["c"], wire::ReplyKind::listed, one("m", 1));
  EXPECT_EQ(reply(), Rows{"b is silent"});
}

TEST_F(Parts, AnAnswerAfterItsChannelClosedIsNobodys) {
  begin(wire::PoolList{"hash:/p", "*", "*", 0}, false);
  auto members = asked();
  gathers_.on_channel_closed(program);
  answer(members["b"], wire::ReplyKind::listed, one("m", 1));
  answer(members["c"], wire::ReplyKind::listed, one("m", 1));
  EXPECT_EQ(reply(), Rows{});
}

TEST_F(Parts, ADropIsAnsweredWhenTheOwnersOfARowOnItsWayHaveDroppedItToo) {
  moves_ = {77};
  begin(wire::PoolDrop{"hash:/p", "*", "*"}, true);
  auto members = asked();
  ASSERT_EQ(members.size(), 2u);
  answer(members["b"], wire::ReplyKind::done, wire::Done{2});
  answer(members["c"], wire::ReplyKind::done, wire::Done{3});
  EXPECT_EQ(reply(), Rows{}) << "the row of the move may still come";
  drops_.on_move_ended(77, {"hash:/p", "r", "c", user, 0, false}, {"c"}, now_, effects_);
  const auto followed = asked();
  ASSERT_EQ(followed.size(), 1u);
  answer(followed.at("c"), wire::ReplyKind::done, wire::Done{1});
  EXPECT_EQ(reply(), Rows{"6"});
}

TEST_F(Parts, ADropFollowsARowThatWentShortlyBeforeOnce) {
  drops_.on_move_ended(77, {"hash:/p", "r", "c", user, 0, false}, {"b"}, now_, effects_);
  std::uint64_t dropped = 0;
  const auto follow = [&] {
    drops_.follow(
        "hash:/p", user, "r", "*", [&](Result<std::uint64_t> rows, Effects&) { dropped = rows ? *rows + 100 : 0; },
        now_, effects_);
  };
  follow();
  const auto followed = asked();
  ASSERT_EQ(followed.size(), 1u);
  answer(followed.at("b"), wire::ReplyKind::done, wire::Done{1});
  EXPECT_EQ(dropped, 101u);
  follow();
  EXPECT_TRUE(asked().empty());
  EXPECT_EQ(dropped, 100u);
}

TEST_F(Parts, ARemovalIsAskedAgainUntilItIsConfirmedOrTheMemberIsBack) {
  const Definition& pool = *context_.directory.known("hash:/p");
  std::string row = "r";
  while (Directory::owners(pool, row).front() != "b") row += "r";
  const Place place{"hash:/p", row, "c", user, 0, true};
  removals_.add(pool, {row, "c"}, now_, effects_);
  EXPECT_TRUE(removals_.contains(place));
  take(asked().at("b"), fail(Error::timeout, "silent"));
  EXPECT_EQ(context_.next, now_ + context_.options.move_retry_ns);
  removals_.on_time(now_, effects_);
  EXPECT_TRUE(asked().empty()) << "not yet";
  now_ = context_.next;
  removals_.on_time(now_, effects_);
  take(asked().at("b"), fail(Error::peer_lost, "gone"));
  context_.directory.change_members({"a", "c"}, 0);
  now_ += context_.options.move_retry_ns;
  removals_.on_time(now_, effects_);
  EXPECT_TRUE(asked().empty()) << "it is away";
  context_.directory.change_members({"a", "b", "c"}, 0);
  removals_.on_newcomers({"b"}, now_);
  removals_.on_time(now_, effects_);
  answer(asked().at("b"), wire::ReplyKind::done, wire::Done{1});
  EXPECT_FALSE(removals_.contains(place));
  EXPECT_EQ(context_.counters.removals_waiting, 0u);
}

TEST_F(Parts, ARemovalWaitsForNoMemberThatIsNamedByAPattern) {
  for (const char* text : {"local:/mine", "hash:/all"}) {
    ASSERT_TRUE(context_.directory.define(text, user, Directory::Access::write, Directory::By::disk, 0, effects_));
    const Definition& pool = *context_.directory.known(text);
    std::string row = "r";
    while (Directory::owners(pool, row).front() != "a") row += "r";
    removals_.add(pool, {row, "c"}, now_, effects_);
    EXPECT_EQ(context_.counters.removals_waiting, 0u) << text;
  }
}

TEST_F(Parts, AListingOfAMemberEndsWithItsLastPage) {
  Rows rows;
  Error why{};
  const auto list = [&](const std::string& member) {
    listings_.ask(
        member, "hash:/p", "r",
        [&](const Result<std::vector<FrameTable::Item>>& items, TimeNs, Effects&) {
          if (!items) why = items.error().code;
          if (items)
            for (const FrameTable::Item& item : *items) rows.push_back(item.row + std::to_string(item.sequence));
        },
        now_, effects_);
  };
  list("b");
  answer(asked().at("b"), wire::ReplyKind::listed, one("r", 1, true));
  EXPECT_TRUE(rows.empty());
  answer(asked().at("b"), wire::ReplyKind::listed, one("r", 2));
  EXPECT_EQ(rows, (Rows{"r1", "r2"}));
  list("nobody");
  EXPECT_EQ(why, Error::peer_lost) << "a member that was not met is not one that has nothing";
}

}  // namespace
}  // namespace offpath::pool
