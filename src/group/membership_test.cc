#include "group/membership.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>

namespace offpath::group {
namespace {

using wire::MemberEntry;

constexpr TimeNs dead_after_ns = 1000 * millisecond_ns;  // a beat is 100 ms

Identity identity(const std::string& name, std::uint64_t incarnation, std::uint64_t process) {
  return {name, incarnation, process, "unix:/" + name, "", "", ""};
}

// One member, and its posts and changes since the last call.
struct Speaker {
  explicit Speaker(Identity id, TimeNs now = 0, std::vector<std::string> seeds = {})
      : membership(std::move(id), {dead_after_ns, std::move(seeds)}, now) {}

  Status hear(const std::vector<std::byte>& bytes, TimeNs now) {
    wire::MemberTable table;
    OFP_TRY(wire::decode(bytes, table));
    return membership.on_table(table, now, effects);
  }
  Status hear(const Speaker& other, TimeNs now) { return hear(other.membership.table(true, now), now); }
  void pass(TimeNs until) {
    for (TimeNs due = membership.next_deadline(); due <= until; due = membership.next_deadline())
      membership.on_time(due, effects);
  }
  [[nodiscard]] MemberState state_of(const std::string& name) const {
    const Member* found = membership.find(name);
    EXPECT_NE(found, nullptr) << name;
    return found != nullptr ? found->state : MemberState::left;
  }
  [[nodiscard]] bool posted_to(const std::string& address) const {
    return std::ranges::find(effects.posts, address, &MembershipEffects::Post::address) != effects.posts.end();
  }

  Membership membership;
  MembershipEffects effects;
};

std::vector<std::byte> table_of(std::string_view sender, std::vector<MemberEntry> entries) {
  std::vector<std::byte> bytes;
  const auto members = static_cast<std::uint32_t>(entries.size());
  wire::encode(wire::MemberTable{sender, 0, members, std::move(entries)}, bytes);
  return bytes;
}

MemberEntry entry(std::string_view name, std::uint64_t incarnation, std::uint64_t process,
                  MemberEntry::State state = MemberEntry::State::alive, std::uint64_t beats = 1) {
  return {state, incarnation, process, beats, name, "unix:/other", "", "", ""};
}

TEST(Membership, OneThatIsHeardOfIsAMemberAndIsAnswered) {
  Speaker a(identity("a", 1, 11)), b(identity("b", 1, 22));
  ASSERT_TRUE(a.hear(b, 0));
  EXPECT_EQ(a.state_of("b"), MemberState::alive);
  a.pass(0);
  EXPECT_TRUE(a.posted_to("unix:/b"));
}

TEST(Membership, AloneItNeedsNoTimeUntilItHearsOfAnother) {
  Speaker a(identity("a", 1, 11)), b(identity("b", 1, 22));
  EXPECT_EQ(a.membership.next_deadline(), never);
  const TimeNs later = 3600 * second_ns;
  ASSERT_TRUE(a.hear(b, later));
  EXPECT_LE(a.membership.next_deadline(), later);
  a.pass(later);
  EXPECT_TRUE(a.posted_to("unix:/b"));
  // Judged by its own silence, not by the time before.
  a.pass(later + 399 * millisecond_ns);
  EXPECT_EQ(a.state_of("b"), MemberState::alive);
  a.pass(later + 400 * millisecond_ns);
  EXPECT_EQ(a.state_of("b"), MemberState::suspect);
  a.pass(later + dead_after_ns);
  EXPECT_EQ(a.state_of("b"), MemberState::dead);
  // A seed is searched, unless it turns out to be this member.
  Speaker c(identity("c", 1, 33), 0, {"unix:/other-name-of-c"});
  EXPECT_EQ(c.membership.next_deadline(), 0);
  c.membership.on_answered("unix:/other-name-of-c", 33);
  EXPECT_EQ(c.membership.next_deadline(), never);
}

TEST(Membership, RoleAndRackAreKnownToOthers) {
  Identity card = identity("b", 1, 22);
  card.role = Role::dpu;
  card.rack = "r7";
  Speaker a(identity("a", 1, 11)), b(card), c(identity("c", 1, 33));
  const std::uint64_t changes = a.membership.changes();
  ASSERT_TRUE(a.hear(b, 0));
  EXPECT_GT(a.membership.changes(), changes);
  ASSERT_TRUE(c.hear(a, 0));  // which passes it on
  for (const Speaker* each : {&a, &c}) {
    EXPECT_EQ(each->membership.find("b")->id.role, Role::dpu);
    EXPECT_EQ(each->membership.find("b")->id.rack, "r7");
  }
  EXPECT_EQ(c.membership.find("a")->id.role, Role::host);
  EXPECT_EQ(c.membership.find("a")->id.rack, "");
}

TEST(Membership, SilenceMakesASuspectThenADeadOneInTheConfiguredTime) {
  Speaker a(identity("a", 1, 11));
  Speaker b(identity("b", 1, 22));
  ASSERT_TRUE(a.hear(b, 0));
  a.pass(399 * millisecond_ns);
  EXPECT_EQ(a.state_of("b"), MemberState::alive);
  a.pass(400 * millisecond_ns);
  EXPECT_EQ(a.state_of("b"), MemberState::suspect);
  EXPECT_NE(a.effects.changes.back().why.find("no sign of life"), std::string::npos);
  a.pass(699 * millisecond_ns);
  EXPECT_EQ(a.state_of("b"), MemberState::suspect);
  a.pass(700 * millisecond_ns);
  EXPECT_EQ(a.state_of("b"), MemberState::dead);
  EXPECT_EQ(a.effects.changes.back().member.name, "b");
  EXPECT_NE(a.effects.changes.back().why.find("not refute a suspicion"), std::string::npos);
}

TEST(Membership, AnAnswerIsASignOfLife) {
  Speaker a(identity("a", 1, 11)), b(identity("b", 1, 22));
  ASSERT_TRUE(a.hear(b, 0));
  for (TimeNs now = 0; now <= 3 * dead_after_ns; now += 100 * millisecond_ns) {
    a.pass(now);
    a.membership.on_taken(33, now);  // of no member
    if (now < 2 * dead_after_ns) a.membership.on_taken(22, now);
    ASSERT_EQ(a.state_of("b"), now < 2 * dead_after_ns + 300 * millisecond_ns   ? MemberState::alive
                               : now < 2 * dead_after_ns + 600 * millisecond_ns ? MemberState::suspect
                                                                                : MemberState::dead)
        << now;
  }
}

TEST(Membership, ABeatIsSmallAndGoesToThreeWhateverTheSizeOfTheGroup) {
  Speaker a(identity("a", 1, 11));
  std::vector<std::string> names;
  for (int i = 0; i < 200; ++i) names.push_back(fmt::format("b{:03}", i));
  std::vector<MemberEntry> entries;
  for (std::size_t i = 0; i < names.size(); ++i) {
    entries.push_back(entry(names[i], 1, 100 + i));
    entries.back().address = names[i];
  }
  ASSERT_TRUE(a.hear(table_of(names[0], entries), 0));
  a.pass(0);
  EXPECT_GE(a.effects.posts.size(), 8u) << "to the members at 1, 2, 4, … 128 places: there are new ones";
  EXPECT_GT(a.membership.table(false, 0).size(), 200u * 33);
  a.effects = {};
  a.pass(50 * millisecond_ns);  // an answer to the sender
  for (std::size_t i = 0; i < names.size(); ++i) a.membership.on_taken(100 + i, 300 * millisecond_ns);
  a.membership.on_time(300 * millisecond_ns, a.effects);
  a.effects = {};
  a.membership.on_time(400 * millisecond_ns, a.effects);
  EXPECT_EQ(a.effects.posts.size(), 3u);
  EXPECT_LT(a.membership.table(false, 400 * millisecond_ns).size(), 120u);
}

TEST(Membership, ASuspicionIsToldAndRefuted) {
  Speaker a(identity("a", 1, 11)), b(identity("b", 1, 22)), c(identity("c", 1, 33));
  for (Speaker* each : {&a, &b, &c})
    for (const Speaker* other : {&a, &b, &c}) ASSERT_TRUE(each->hear(*other, 0));
  a.membership.on_lost(22, "the agent ended", 1, a.effects);
  EXPECT_EQ(a.state_of("b"), MemberState::suspect);
  a.effects = {};
  a.pass(1);
  EXPECT_TRUE(a.posted_to("unix:/b")) << "so that it can refute it at once";
  EXPECT_TRUE(a.posted_to("unix:/c"));
  ASSERT_TRUE(c.hear(a, 1));
  EXPECT_EQ(c.state_of("b"), MemberState::suspect);
  ASSERT_TRUE(a.hear(b, 2));  // it does not know of that yet
  EXPECT_EQ(a.state_of("b"), MemberState::suspect);
  ASSERT_TRUE(b.hear(a, 2));
  EXPECT_EQ(b.membership.self().refuted, 1u);
  b.effects = {};
  b.pass(100 * millisecond_ns);
  EXPECT_TRUE(b.posted_to("unix:/c"));
  for (Speaker* each : {&a, &c}) {
    ASSERT_TRUE(each->hear(b, 3));
    EXPECT_EQ(each->state_of("b"), MemberState::alive);
    ASSERT_TRUE(each->hear(table_of("x", {entry("x", 1, 44), entry("b", 1, 22, MemberEntry::State::suspect, 0)}), 4));
    EXPECT_EQ(each->state_of("b"), MemberState::alive) << "an old suspicion";
  }
}

TEST(Membership, ASuspectThatPostsIsToldSoAndIsNotHeldDead) {
  Speaker a(identity("a", 1, 11)), b(identity("b", 1, 22));
  ASSERT_TRUE(a.hear(b, 0));
  ASSERT_TRUE(a.hear(table_of("c", {entry("c", 1, 33), entry("b", 1, 22, MemberEntry::State::suspect)}), 0));
  for (TimeNs now = 100 * millisecond_ns; now <= 2 * dead_after_ns; now += 100 * millisecond_ns) {
    a.pass(now - 1);
    a.effects = {};
    ASSERT_TRUE(a.hear(b, now));
    a.pass(now);
    EXPECT_TRUE(a.posted_to("unix:/b"));
    ASSERT_EQ(a.state_of("b"), MemberState::suspect);
  }
}

TEST(Membership, ADigestThatDiffersIsAnsweredByTheWholeTable) {
  Speaker a(identity("a", 1, 11)), b(identity("b", 1, 22));
  ASSERT_TRUE(a.hear(b, 0));
  ASSERT_TRUE(b.hear(a, 0));
  const auto whole_to_b = [&](TimeNs now) {
    a.effects = {};
    EXPECT_TRUE(a.hear(b.membership.table(false, now), now));
    a.pass(now);
    return std::ranges::any_of(a.effects.posts,
                               [](const auto& post) { return post.address == "unix:/b" && post.whole; });
  };
  // c is known to one of them, and its entry is old.
  ASSERT_TRUE(a.hear(table_of("c", {entry("c", 1, 33, MemberEntry::State::left)}), 1));
  for (TimeNs now = 100; now <= 400; now += 100) {
    a.pass(now * millisecond_ns);
    b.pass(now * millisecond_ns);
  }
  EXPECT_TRUE(whole_to_b(410 * millisecond_ns)) << "b has fewer members";
  EXPECT_FALSE(whole_to_b(420 * millisecond_ns)) << "once a beat";
  EXPECT_TRUE(whole_to_b(520 * millisecond_ns));
  EXPECT_FALSE(whole_to_b(630 * millisecond_ns)) << "less often if nothing changes";
  ASSERT_TRUE(b.hear(a, 640 * millisecond_ns));
  EXPECT_FALSE(whole_to_b(900 * millisecond_ns)) << "now they agree";
}

TEST(Membership, AMemberBehindASilentOneIsAskedBeforeThatOneIsDead) {
  Speaker a(identity("a", 1, 11));
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) names.push_back(fmt::format("b{:03}", i));
  std::vector<MemberEntry> entries;
  for (std::size_t i = 0; i < names.size(); ++i) {
    entries.push_back(entry(names[i], 1, 100 + i));
    entries.back().address = names[i];
  }
  ASSERT_TRUE(a.hear(table_of(names[0], entries), 0));
  std::set<std::string> asked[2];
  for (TimeNs now = 0; now <= 300 * millisecond_ns; now += 100 * millisecond_ns) {
    a.membership.on_time(now, a.effects);
    if (now >= 100 * millisecond_ns)
      for (const auto& post : a.effects.posts) asked[now > 100 * millisecond_ns ? 1 : 0].insert(post.address);
    a.effects = {};
  }
  EXPECT_EQ(asked[0].size(), 3u);
  EXPECT_GE(asked[1].size(), 9u) << "the next three after it, and the six before it that are silent as well";
}

TEST(Membership, AfterALostChannelDeathComesWithoutWaitingForTheSilence) {
  Speaker a(identity("a", 1, 11)), b(identity("b", 1, 22));
  ASSERT_TRUE(a.hear(b, 0));
  a.membership.on_lost(22, "the agent ended", 0, a.effects);
  a.pass(300 * millisecond_ns);
  EXPECT_EQ(a.state_of("b"), MemberState::dead);
}

TEST(Membership, AnOldIncarnationNeverComesBack) {
  Speaker a(identity("a", 1, 11));
  ASSERT_TRUE(a.hear(table_of("b", {entry("b", 7, 22)}), 0));
  ASSERT_TRUE(a.hear(table_of("c", {entry("c", 1, 33), entry("b", 7, 22, MemberEntry::State::dead)}), 1));
  EXPECT_EQ(a.state_of("b"), MemberState::dead);
  ASSERT_TRUE(a.hear(table_of("b", {entry("b", 7, 22, MemberEntry::State::alive, 1000)}), 2));
  ASSERT_TRUE(a.hear(table_of("b", {entry("b", 6, 99, MemberEntry::State::alive, 1000)}), 3));
  EXPECT_EQ(a.state_of("b"), MemberState::dead);
  EXPECT_EQ(a.membership.find("b")->id.incarnation, 7u);
  ASSERT_TRUE(a.hear(table_of("b", {entry("b", 8, 44)}), 4));
  EXPECT_EQ(a.state_of("b"), MemberState::alive);
}

TEST(Membership, AProcessStartsBelowAnyEarlierOneOfItsNameAndGoesOnAboveIt) {
  Speaker a(identity("a", 1, 11));
  ASSERT_TRUE(a.hear(table_of("b", {entry("b", 7, 22)}), 0));
  Speaker b(identity("b", 0, 99));
  ASSERT_TRUE(a.hear(b, 1));
  EXPECT_EQ(a.membership.find("b")->id.process, 22u);
  a.effects = {};
  a.pass(100 * millisecond_ns);
  EXPECT_TRUE(a.posted_to("unix:/b"));
  ASSERT_TRUE(b.hear(a, 2));
  EXPECT_EQ(b.membership.self().id.incarnation, 8u);
  ASSERT_TRUE(a.hear(b, 3));
  EXPECT_EQ(a.membership.find("b")->id.process, 99u);
}

TEST(Membership, AProcessOfANewNameHasItsFirstIncarnationWhenOthersKnowIt) {
  Speaker a(identity("a", 1, 11)), b(identity("b", 0, 22));
  ASSERT_TRUE(a.hear(b, 0));
  ASSERT_TRUE(b.hear(a, 1));
  EXPECT_EQ(b.membership.self().id.incarnation, 1u);
  ASSERT_TRUE(a.hear(b, 2));
  EXPECT_EQ(a.membership.find("b")->id.incarnation, 1u);
  EXPECT_EQ(a.effects.changes.back().instead_of->process, 22u);
}

TEST(Membership, AnAnswerGoesToWhereTheSenderSaysItIs) {
  Speaker a(identity("a", 1, 11));
  ASSERT_TRUE(a.hear(table_of("b", {entry("b", 7, 22)}), 0));
  a.effects = {};
  MemberEntry newcomer = entry("b", 0, 99);
  newcomer.address = "unix:/elsewhere";
  ASSERT_TRUE(a.hear(table_of("b", {newcomer}), 1));
  a.pass(100 * millisecond_ns);
  EXPECT_TRUE(a.posted_to("unix:/elsewhere"));
}

TEST(Membership, ARestartIsToldAsSuch) {
  Speaker a(identity("a", 1, 11));
  ASSERT_TRUE(a.hear(table_of("b", {entry("b", 7, 22)}), 0));
  EXPECT_FALSE(a.effects.changes.back().instead_of);
  ASSERT_TRUE(a.hear(table_of("b", {entry("b", 8, 44)}), 1));
  const Change& change = a.effects.changes.back();
  EXPECT_EQ(change.member.incarnation, 8u);
  ASSERT_TRUE(change.instead_of);
  EXPECT_EQ(change.instead_of->incarnation, 7u);
}

TEST(Membership, WhoIsTakenForDeadGoesOnAsTheNextIncarnation) {
  Speaker a(identity("a", 5, 11));
  ASSERT_TRUE(a.hear(table_of("b", {entry("b", 1, 22), entry("a", 5, 11, MemberEntry::State::dead)}), 0));
  EXPECT_EQ(a.membership.self().id.incarnation, 6u);
  EXPECT_EQ(a.membership.self().state, MemberState::alive);
  a.pass(0);
  EXPECT_TRUE(a.posted_to("unix:/other")) << "the others are to know";
}

TEST(Membership, AClockThatWentBackIsMadeUpFor) {
  Speaker a(identity("a", 5, 11));
  ASSERT_TRUE(a.hear(table_of("b", {entry("b", 1, 22), entry("a", 9, 99)}), 0));
  EXPECT_EQ(a.membership.self().id.incarnation, 10u);
  EXPECT_EQ(a.membership.self().state, MemberState::alive);
}

TEST(Membership, ASecondProcessOfOneNameReplacesTheFirst) {
  Speaker a(identity("a", 5, 11));
  ASSERT_TRUE(a.hear(table_of("b", {entry("b", 1, 22), entry("a", 5, 11)}), 0));  // it is known
  ASSERT_TRUE(a.hear(table_of("b", {entry("b", 1, 22), entry("a", 9, 99)}), 1));
  EXPECT_EQ(a.membership.self().state, MemberState::dead);
  EXPECT_NE(a.effects.changes.back().why.find("another agent of its name took over"), std::string::npos);
  EXPECT_EQ(a.membership.next_deadline(), never);
}

TEST(Membership, AnEarlierProcessAtTheSameAddressDoesNotReplaceIt) {
  Speaker a(identity("a", 5, 11));
  ASSERT_TRUE(a.hear(table_of("b", {entry("b", 1, 22), entry("a", 5, 11)}), 0));  // it is known
  MemberEntry earlier = entry("a", 9, 99);
  earlier.address = "unix:/a";
  ASSERT_TRUE(a.hear(table_of("b", {entry("b", 1, 22), earlier}), 1));
  EXPECT_EQ(a.membership.self().state, MemberState::alive);
  EXPECT_EQ(a.membership.self().id.incarnation, 10u);
}

TEST(Membership, WhoWasStoppedJudgesNobodyByTheTimeItMissed) {
  Speaker a(identity("a", 1, 11)), b(identity("b", 1, 22));
  ASSERT_TRUE(a.hear(b, 0));
  a.pass(0);
  a.membership.on_time(100 * dead_after_ns, a.effects);
  EXPECT_EQ(a.state_of("b"), MemberState::alive);
  a.pass(102 * dead_after_ns);  // but by the silence after it
  EXPECT_EQ(a.state_of("b"), MemberState::dead);
}

TEST(Membership, LeavingIsToldAndIsNoDeath) {
  Speaker a(identity("a", 1, 11)), b(identity("b", 1, 22));
  ASSERT_TRUE(a.hear(b, 0));
  ASSERT_TRUE(b.hear(a, 0));
  a.effects = {};
  a.membership.leave(1, a.effects);
  EXPECT_TRUE(a.posted_to("unix:/b"));
  ASSERT_TRUE(b.hear(a, 1));
  EXPECT_EQ(b.state_of("a"), MemberState::left);
  b.pass(2 * dead_after_ns);
  EXPECT_EQ(b.state_of("a"), MemberState::left);
  EXPECT_FALSE(a.hear(b, 2)) << "one that left takes no tables";
}

TEST(Membership, SeedsAreTriedInTurnUntilSomebodyLivesThere) {
  Speaker a(identity("a", 1, 11), 0, {"unix:/b", "unix:/c", "unix:/a"});
  EXPECT_EQ(a.membership.waiting_seeds(), 2u) << "it does not wait for its own address";
  a.pass(100 * millisecond_ns);
  EXPECT_TRUE(a.posted_to("unix:/b"));
  EXPECT_TRUE(a.posted_to("unix:/c"));
  EXPECT_FALSE(a.posted_to("unix:/a"));
  ASSERT_TRUE(a.hear(Speaker(identity("b", 1, 22)), 1));
  EXPECT_EQ(a.membership.waiting_seeds(), 1u);
  a.membership.on_answered("unix:/c", 11);  // another name of itself
  EXPECT_EQ(a.membership.waiting_seeds(), 0u);
}

TEST(Membership, TheDeadAreAskedInTurnSoThatHalvesFindTogether) {
  Speaker a(identity("a", 1, 11));
  ASSERT_TRUE(a.hear(table_of("b", {entry("b", 1, 22), entry("c", 1, 33)}), 0));
  a.pass(2 * dead_after_ns);
  ASSERT_EQ(a.state_of("c"), MemberState::dead);
  a.effects = {};
  a.pass(2 * dead_after_ns + 800 * millisecond_ns);
  EXPECT_TRUE(a.posted_to("unix:/other"));
}

TEST(Membership, ATableWithoutItsSenderIsRefused) {
  Speaker a(identity("a", 1, 11));
  const Status status = a.hear(table_of("x", {entry("b", 1, 22)}), 0);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Error::protocol);
  EXPECT_TRUE(a.membership.others().empty());
}

TEST(Membership, AFullTableTakesNoStrangersAndStillEncodes) {
  Speaker a(identity("a", 1, 11));
  std::vector<std::string> names;
  for (std::uint32_t i = 0; i < wire::members_max - 1; ++i) names.push_back(fmt::format("b{:0>254}", i));
  std::vector<MemberEntry> entries;
  for (const std::string& name : names)
    entries.push_back({MemberEntry::State::alive, 1, 22, 1, name, name, name, name, name});
  ASSERT_TRUE(a.hear(table_of(names[0], entries), 0));
  ASSERT_TRUE(a.hear(table_of("stranger", {entry("stranger", 1, 77)}), 0));
  EXPECT_EQ(a.membership.find("stranger"), nullptr);
  EXPECT_EQ(a.membership.others().size(), wire::members_max - 1);
  const auto bytes = a.membership.table(true, 0);
  EXPECT_LE(bytes.size(), wire::member_table_bytes_max);
  Speaker c(identity("c", 1, 33));
  EXPECT_TRUE(c.hear(bytes, 0));
}

}  // namespace
}  // namespace offpath::group
