// The pools of one agent: names, puts, gets and permissions. Several agents together: tests/sim/pool_sim_test.cc.
#include <algorithm>

#include "testing/pool/one_member.h"

namespace offpath::pool {
namespace {

using wire::EntryKind;

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
      "pool \"hash:/p\": object (r, c) needs min_copies=2 before it is stored, and 1 of its members are alive: a");
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
  // At an owner: it gets the cancellation, and its later answer is ignored.
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
