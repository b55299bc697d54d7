#include "exchange/grants.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>

namespace offpath::exchange {
namespace {

constexpr TimeNs ms = millisecond_ns;

// Members whose messages the test delivers.
struct Members {
  explicit Members(std::size_t count, std::uint64_t total = 100) : options{total, 100 * ms, 50 * ms}, all(count) {
    for (MemberIndex i = 0; i < count; ++i) start(i);
  }
  void start(MemberIndex i) {
    std::vector<std::uint32_t> ranks(all.size());
    std::iota(ranks.begin(), ranks.end(), 0u);
    all[i] = std::make_unique<Grants>(options, i, ranks, ++nonce, now);
  }
  // A round of this leader, in which it reaches and hears `reached`.
  void round(MemberIndex leader, const std::vector<MemberIndex>& reached) {
    Grants& lead = *all[leader];
    lead.on_round(true, now);
    for (const MemberIndex i : reached) {
      if (i == leader) continue;
      all[i]->on_round(false, now);
      const Grants::Beat beat = lead.beat();
      all[i]->on_beat(beat.leader, beat.nonce, beat.beat, now);
      lead.on_ballot(all[i]->ballot(), now);
    }
    lead.issue(now);
    for (const MemberIndex i : reached)
      if (i != leader) deliver(leader, i);
  }
  void deliver(MemberIndex leader, MemberIndex to) {
    const Grants::Beat beat = all[leader]->beat();
    if (const Grant* grant = all[leader]->grant_of(to)) all[to]->on_grant(beat.leader, beat.nonce, *grant, now);
  }
  void set_target(MemberIndex leader, std::uint64_t amount) {
    for (MemberIndex i = 0; i < all.size(); ++i) all[leader]->set_target(i, amount);
  }
  [[nodiscard]] std::uint64_t held(MemberIndex i) const { return all[i]->held(now).amount; }

  GrantOptions options;
  std::vector<std::unique_ptr<Grants>> all;
  std::uint64_t nonce = 0;
  TimeNs now = second_ns;
};

const std::vector<MemberIndex> everybody{0, 1, 2, 3, 4};

// CLOCK_MONOTONIC stands still while a machine is suspended, and the others' goes on.
TEST(Grants, EndForAMemberAndALeaderThatWereSuspended) {
  Members members(5);
  members.now += 101 * ms;
  members.set_target(0, 10);
  for (int i = 0; i < 2; ++i) members.round(0, everybody);
  ASSERT_EQ(members.held(1), 10u);
  ASSERT_TRUE(members.all[0]->may_grant(members.now));
  members.all[1]->on_suspended(20 * ms);
  EXPECT_EQ(members.held(1), 10u) << "it has time left";
  members.all[1]->on_suspended(40 * ms);
  EXPECT_EQ(members.held(1), 0u) << "50 ms were granted, 60 are over";
  EXPECT_EQ(members.held(2), 10u);
  members.deliver(0, 1);
  EXPECT_EQ(members.held(1), 0u) << "what comes late counts from when it was asked for, which is longer ago now";
  members.all[0]->on_suspended(101 * ms);
  EXPECT_FALSE(members.all[0]->may_grant(members.now)) << "others may have another leader by now";
  EXPECT_EQ(members.all[0]->held(members.now).amount, 0u);
  members.now += ms;
  members.round(0, everybody);
  members.round(0, everybody);
  EXPECT_EQ(members.held(1), 10u) << "and it goes on";
}

TEST(Grants, NobodyVotesBeforeItsPromisesOfAnEarlierLifeAreOver) {
  Members members(5);
  members.set_target(0, 10);
  members.round(0, everybody);
  EXPECT_FALSE(members.all[0]->may_grant(members.now));
  members.now += 101 * ms;
  members.round(0, everybody);
  EXPECT_TRUE(members.all[0]->may_grant(members.now));
  for (const MemberIndex i : everybody) EXPECT_EQ(members.held(i), 10u);
}

TEST(Grants, AMinorityStandsBehindNobody) {
  Members members(5);
  members.now += 101 * ms;
  members.set_target(0, 10);
  members.round(0, {0, 1});
  EXPECT_FALSE(members.all[0]->may_grant(members.now));
  members.round(0, {0, 1, 2});
  EXPECT_TRUE(members.all[0]->may_grant(members.now));
}

TEST(Grants, WhatIsWishedForIsCutToTheTotal) {
  Members members(5);
  members.now += 101 * ms;
  members.set_target(0, 40);
  members.round(0, everybody);
  std::uint64_t sum = 0;
  for (const MemberIndex i : everybody) sum += members.held(i);
  EXPECT_EQ(sum, 100u);
  EXPECT_EQ(members.all[0]->given_out(members.now), 100u);
}

TEST(Grants, WhatOneGivesUpAnotherGetsOnlyWhenItIsKnownToBeGivenUp) {
  Members members(3);
  members.now += 101 * ms;
  members.all[0]->set_target(1, 100);
  members.round(0, {0, 1, 2});
  EXPECT_EQ(members.held(1), 100u);
  members.all[0]->set_target(1, 20);
  members.all[0]->set_target(2, 80);
  members.now += ms;
  // 1 is cut off: it keeps its amount.
  members.round(0, {0, 2});
  EXPECT_EQ(members.held(1), 100u);
  EXPECT_EQ(members.held(2), 0u);
  members.now += ms;
  members.round(0, {0, 1, 2});  // it learns of its 20 ...
  members.now += ms;
  members.round(0, {0, 1, 2});  // ... and confirms it
  members.now += ms;
  members.round(0, {0, 1, 2});
  EXPECT_EQ(members.held(1), 20u);
  EXPECT_EQ(members.held(2), 80u);
}

TEST(Grants, WhatAProgramMayStillUseIsNotGivenUpForIt) {
  Members members(3);
  members.now += 101 * ms;
  members.all[1]->set_user(true);
  members.all[0]->set_target(1, 100);
  members.round(0, {0, 1, 2});
  const std::uint64_t before = members.all[1]->held(members.now).number;
  members.all[1]->on_user_goes_by(members.all[1]->held_nonce(), before);
  members.all[0]->set_target(1, 0);
  members.all[0]->set_target(2, 100);
  for (int i = 0; i < 5; ++i) {
    members.now += ms;
    members.round(0, {0, 1, 2});
    EXPECT_EQ(members.held(2), 0u);  // the program of 1 has not looked
  }
  members.all[1]->on_user_goes_by(members.all[1]->held_nonce(), members.all[1]->held(members.now).number);
  for (int i = 0; i < 2; ++i) {
    members.now += ms;
    members.round(0, {0, 1, 2});
  }
  EXPECT_EQ(members.held(2), 100u);
}

TEST(Grants, AGrantOnItsWayForLongIsOverWhenItArrives) {
  Members members(3);
  members.now += 101 * ms;
  members.all[0]->set_target(1, 100);
  members.all[0]->on_round(true, members.now);
  members.all[1]->on_round(false, members.now);
  members.all[2]->on_round(false, members.now);
  const Grants::Beat beat = members.all[0]->beat();
  for (const MemberIndex i : {1, 2}) {
    members.all[i]->on_beat(beat.leader, beat.nonce, beat.beat, members.now);
    members.all[0]->on_ballot(members.all[i]->ballot(), members.now);
  }
  members.all[0]->issue(members.now);
  const Grant grant = *members.all[0]->grant_of(1);
  members.now += 51 * ms;
  members.all[1]->on_grant(0, beat.nonce, grant, members.now);
  EXPECT_EQ(members.held(1), 0u);
}

TEST(Grants, ASecondLeaderWaitsUntilNothingOfTheFirstIsValid) {
  Members members(5);
  members.now += 101 * ms;
  members.set_target(0, 20);
  members.set_target(1, 20);
  members.round(0, everybody);
  // From now on 0 and 4 hear each other, and the others hear 1.
  for (int i = 0; i < 300; ++i) {
    members.now += ms;
    members.round(0, {0, 4});
    members.round(1, {1, 2, 3});
    std::uint64_t sum = 0;
    for (const MemberIndex each : everybody) sum += members.held(each);
    ASSERT_LE(sum, 100u) << i;
    ASSERT_FALSE(members.all[0]->may_grant(members.now) && members.all[1]->may_grant(members.now)) << i;
  }
  EXPECT_FALSE(members.all[0]->may_grant(members.now));
  EXPECT_EQ(members.held(0) + members.held(4), 0u);
  EXPECT_EQ(members.held(2), 20u);
}

TEST(Grants, ALeaderThatStartsAnewIsAnotherLeader) {
  Members members(3);
  members.now += 101 * ms;
  members.all[0]->set_target(1, 100);
  members.round(0, {0, 1, 2});
  EXPECT_EQ(members.held(1), 100u);
  members.start(0);  // it has forgotten its grants
  members.all[0]->set_target(2, 100);
  for (int i = 0; i < 300; ++i) {
    members.now += ms;
    members.round(0, {0, 1, 2});
    ASSERT_LE(members.held(0) + members.held(1) + members.held(2), 100u) << i;
  }
  EXPECT_EQ(members.held(2), 100u);
}

TEST(Grants, ARepeatedBeatOfAFormerLeaderIsNotASignOfIt) {
  Members members(5);
  members.now += 101 * ms;
  members.set_target(1, 20);
  members.round(0, everybody);
  const Grants::Beat last = members.all[0]->beat();
  members.now += 101 * ms;
  for (int i = 0; i < 300; ++i) {
    members.now += ms;
    members.round(1, {1, 2, 3});
    for (const MemberIndex each : {1, 2, 3})
      members.all[each]->on_beat(last.leader, last.nonce, last.beat, members.now);
    ASSERT_EQ(members.all[1]->leader(), 1u) << i;
    ASSERT_EQ(members.held(2), 20u) << i;
  }
  // A newer beat is.
  for (int i = 0; i < 101; ++i) {
    members.now += ms;
    members.round(1, {1, 2, 3});
    for (const MemberIndex each : {1, 2, 3})
      members.all[each]->on_beat(last.leader, last.nonce, last.beat + 1 + i, members.now);
  }
  EXPECT_EQ(members.all[2]->leader(), 0u);
}

TEST(Grants, WhatDecidesCountsALeaseAfterItCameUnlessItsMemberLeads) {
  Members members(3);
  members.now += 101 * ms;
  const auto deciding = [&](MemberIndex member, MemberIndex known_by) {
    return members.all[known_by]->deciding(member, members.now);
  };
  members.all[1]->set_deciding(Deciding::able, members.now);
  members.round(0, {0, 1, 2});
  EXPECT_EQ(deciding(1, 1), Deciding::no);
  members.now += 50 * ms;
  members.all[1]->set_deciding(Deciding::granting, members.now);  // it was there before
  members.now += 50 * ms;
  members.round(0, {0, 1, 2});
  EXPECT_EQ(deciding(1, 1), Deciding::granting);
  EXPECT_EQ(deciding(1, 0), Deciding::granting);
  EXPECT_EQ(deciding(1, 2), Deciding::no) << "its ballots do not reach it";
  members.all[1]->set_deciding(Deciding::no, members.now);
  EXPECT_EQ(deciding(1, 1), Deciding::no);
  EXPECT_EQ(deciding(1, 0), Deciding::granting);
  members.now += 100 * ms;
  EXPECT_EQ(deciding(1, 0), Deciding::no) << "it was not heard for a lease";
  members.all[0]->set_deciding(Deciding::able, members.now);
  EXPECT_EQ(deciding(0, 0), Deciding::able);
}

TEST(Grants, WithoutALimitAnythingCanBeGranted) {
  Members members(3, GrantOptions::unlimited);
  members.now += 101 * ms;
  members.set_target(0, UINT64_MAX - 1);
  members.round(0, {0, 1, 2});
  EXPECT_EQ(members.held(1), UINT64_MAX - 1);
  EXPECT_EQ(members.held(2), UINT64_MAX - 1);
}

}  // namespace
}  // namespace offpath::exchange
