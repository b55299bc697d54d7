#include "group/resources.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"

namespace offpath::group {
namespace {

constexpr uid_t user = 1000;

// An agent's folders, with names that the test adds.
struct Folder {
  std::vector<std::string> names;
  std::uint64_t changes = 0;

  void add(std::string name) {
    names.push_back(std::move(name));
    std::ranges::sort(names);
    ++changes;
  }
  [[nodiscard]] ResourceSection section(std::string root, bool of_group = false) {
    return {.root = std::move(root),
            .of_group = of_group,
            .changes = [this] { return changes; },
            .visit =
                [this](uid_t, std::string_view after, const ResourceSection::Take& take) {
                  for (const std::string& name : names)
                    if (name > after && !take(name, "about " + name)) return;
                }};
  }
};

struct Page {
  std::vector<std::string> paths, abouts, members;
  bool more = false;
  std::uint64_t version = 0;
};

class ResourcesTest : public testing::Test {
 protected:
  ResourcesTest() {
    resources.set_self("a", 100);
    resources.add(pools.section("/pools"));
    resources.add(members.section("/members", true));
    members.add("a");
    members.add("b");
    pools.add("hash:/x");
    pools.add("hash:/x/y");
    pools.add("hash:/xz");
  }
  void ask(const wire::ListResources& question, service::ChannelNumber channel = 1) {
    payload.clear();
    wire::encode(question, payload);
    request(wire::EntryKind::list_resources, channel, false);
  }
  std::vector<service::AskEffect> take_asks() {
    std::vector<service::AskEffect> asks;
    for (service::Effect& each : effects) asks.push_back(std::get<service::AskEffect>(each));
    effects.clear();
    return asks;
  }
  void ask_as_member(const wire::PeerResources& question) {
    payload.clear();
    wire::encode(question, payload);
    request(wire::EntryKind::peer_resources, 2, true);
  }
  void request(wire::EntryKind kind, service::ChannelNumber channel, bool is_member) {
    const channel::Entry entry{.ticket = ++ticket, .kind = static_cast<std::uint8_t>(kind), .payload = payload};
    const std::string program = "test";
    resources.on_request({channel, entry, program, user, is_member}, now, effects);
  }
  // Advances the time to the next deadline, like a loop.
  void pass() {
    resources.on_round(now, effects);
    ASSERT_NE(resources.next_deadline(), never);
    now = std::max(now, resources.next_deadline());
    resources.on_time(now, effects);
  }
  Page page() {
    EXPECT_EQ(effects.size(), 1u);
    const service::ListedEffect listed = std::get<service::ListedEffect>(effects.at(0));
    effects.clear();
    Page found{{}, {}, {}, listed.message.more, listed.message.view};
    for (const wire::ListedEntry& each : listed.message.entries) {
      found.paths.emplace_back(each.row_key);
      found.abouts.emplace_back(each.column_key);
      found.members.emplace_back(each.member);
    }
    return found;
  }
  std::string failure() {
    const std::string message = std::get<service::FailEffect>(effects.at(0)).failure.message;
    effects.clear();
    return message;
  }

  Folder pools, members;
  Resources resources;
  service::Effects effects;
  std::vector<std::byte> payload;
  std::uint64_t ticket = 0;
  TimeNs now = second_ns;
};

using Paths = std::vector<std::string>;

TEST_F(ResourcesTest, AreListedByPath) {
  ask({"", "/", "", 0, 0});
  const Page all = page();
  EXPECT_EQ(all.paths, (Paths{"/members/a", "/members/b", "/pools/hash:/x", "/pools/hash:/x/y", "/pools/hash:/xz"}));
  EXPECT_EQ(all.abouts.front(), "about a");
  EXPECT_EQ(all.members, Paths(5, "a"));
  EXPECT_FALSE(all.more);
  ask({"a", "/pools/hash:/x/", "", 0, 0});
  EXPECT_EQ(page().paths, (Paths{"/pools/hash:/x", "/pools/hash:/x/y"})) << "no name that only begins alike";
  ask({"", "/pools", "/pools/hash:/x", 0, 0});
  EXPECT_EQ(page().paths, (Paths{"/pools/hash:/x/y", "/pools/hash:/xz"})) << "those behind it";
  ask({"", "", "/members/b", 0, 0});
  EXPECT_EQ(page().paths.size(), 3u) << "the folder before is over";
  ask({"", "/nothing", "", 0, 0});
  EXPECT_EQ(page().paths, Paths());
}

TEST_F(ResourcesTest, OtherMembersAreNotToldWhatTheyKnow) {
  ask_as_member({user, 1, "", "", 0, 0});
  const Page part = page();
  EXPECT_EQ(part.paths, (Paths{"/pools/hash:/x", "/pools/hash:/x/y", "/pools/hash:/xz"}));
  ask_as_member({user, 2, "", "", part.version, second_ns});
  members.add("c");
  resources.on_round(now, effects);
  now += Resources::gather_ns;
  resources.on_time(now, effects);
  EXPECT_TRUE(effects.empty()) << "nothing of its own has changed";
  pools.add("tag:/z");
  pass();
  EXPECT_EQ(page().paths.back(), "/pools/tag:/z");
}

TEST_F(ResourcesTest, AQuestionWaitsForAnotherVersion) {
  ask({"", "", "", 0, 0});
  const std::uint64_t seen = page().version;
  ask({"", "/pools", "", seen, 10 * second_ns});
  for (int round = 0; round < 3; ++round) resources.on_round(now += millisecond_ns, effects);
  EXPECT_TRUE(effects.empty());
  EXPECT_EQ(resources.waiting(), 1u);
  const TimeNs changed = now;
  for (int i = 0; i < 100; ++i) pools.add("rank:/" + std::to_string(i));
  pass();
  EXPECT_LE(now - changed, Resources::gather_ns);
  const Page after = page();
  EXPECT_EQ(after.paths.size(), 103u) << "one answer for many changes";
  EXPECT_NE(after.version, seen);
  EXPECT_EQ(resources.waiting(), 0u);
  ask({"", "/pools", "", seen, 10 * second_ns});
  EXPECT_EQ(page().version, after.version) << "at once: it has seen an older one";
}

TEST_F(ResourcesTest, AWaitEndsWithoutAChange) {
  ask({"", "", "", 0, 0});
  const std::uint64_t seen = page().version;
  ask({"", "", "", seen, 1000 * second_ns});
  const TimeNs began = now;
  resources.on_round(now, effects);
  while (effects.empty()) pass();
  EXPECT_EQ(now - began, Resources::wait_max_ns);
  const Page same = page();
  EXPECT_EQ(same.version, seen);
  EXPECT_EQ(same.paths, Paths());
}

TEST_F(ResourcesTest, PagesAreBounded) {
  for (int i = 0; i < 2000; ++i) pools.add("rank:/a-pool-with-a-longer-name-" + std::to_string(i));
  Paths all;
  std::string after;
  Page each;
  do {
    ask({"", "/pools", after, 0, 0});
    each = page();
    ASSERT_FALSE(each.paths.empty());
    EXPECT_LT(each.paths.size(), 250u);
    all.insert(all.end(), each.paths.begin(), each.paths.end());
    after = all.back();
  } while (each.more);
  EXPECT_EQ(all.size(), 2003u);
  EXPECT_TRUE(std::ranges::is_sorted(all));
}

TEST_F(ResourcesTest, AnotherMembersPartComesFromIt) {
  ask({"b", "/pools", "", 7, 5 * second_ns});
  auto asked = std::get<service::AskEffect>(effects.at(0));
  effects.clear();
  EXPECT_EQ(asked.member, "b");
  EXPECT_EQ(asked.kind, wire::EntryKind::peer_resources);
  EXPECT_EQ(asked.deadline, now + 5 * second_ns + Resources::member_grace_ns);
  payload.clear();
  asked.compose({}, payload);
  wire::PeerResources there{};
  ASSERT_TRUE(wire::decode(payload, there));
  EXPECT_EQ(there.user, user) << "the member shows what this user may see";
  EXPECT_EQ(there.seen, 7u);
  service::Answer answer{.kind = wire::ReplyKind::listed};
  wire::encode(wire::Listed{false, {{1, 0, 0, false, "/pools/local:/p", "budget=1", "b"}}, 9}, answer.payload);
  resources.on_answer(asked.token, answer, now, effects);
  const Page part = page();
  EXPECT_EQ(part.paths, Paths{"/pools/local:/p"});
  EXPECT_EQ(part.members, Paths{"b"});
  EXPECT_EQ(part.version, 9u);
  EXPECT_EQ(resources.waiting(), 0u);

  ask({"c", "", "", 0, 0});
  asked = std::get<service::AskEffect>(effects.at(0));
  effects.clear();
  resources.on_answer(asked.token, fail(Error::peer_lost, "member c is dead"), now, effects);
  EXPECT_EQ(failure(), "member c is dead");
  ask({"c", "", "", 0, 0});
  asked = std::get<service::AskEffect>(effects.at(0));
  effects.clear();
  resources.on_answer(asked.token, service::Answer{.kind = wire::ReplyKind::done}, now, effects);
  EXPECT_EQ(failure(), "a member answered with reply kind 6");
}

TEST_F(ResourcesTest, AProgramsQuestionsAreBoundedAndEndWithIt) {
  ask({"", "", "", 0, 0});
  const std::uint64_t seen = page().version;
  for (std::size_t i = 0; i < Resources::program_member_max; ++i) ask({"", "", "", seen, second_ns});
  EXPECT_TRUE(effects.empty());
  ask({"", "", "", seen, second_ns});
  EXPECT_NE(failure().find("which is the limit"), std::string::npos);
  ask({"", "", "", seen, second_ns}, 7);
  EXPECT_TRUE(effects.empty()) << "of another program";
  for (std::size_t i = 0; i < Resources::program_waiting_max - Resources::program_member_max; ++i)
    ask({"b" + std::to_string(i), "", "", 0, 0});
  EXPECT_EQ(take_asks().size(), Resources::program_waiting_max - Resources::program_member_max) << "a watch of many";
  ask({"b", "", "", 0, 0});
  EXPECT_NE(failure().find("which is the limit"), std::string::npos) << "those to members count, too";
  resources.on_closed(1, true, now, effects);
  EXPECT_EQ(take_asks().size(), Resources::program_waiting_max - Resources::program_member_max) << "are cancelled";
  EXPECT_EQ(resources.waiting(), 1u + Resources::program_waiting_max - Resources::program_member_max);
  ask({"", "", "", seen, second_ns});
  EXPECT_TRUE(effects.empty());
}

// The questions of a program that connects, asks and leaves repeatedly are counted until the member has answered.
TEST_F(ResourcesTest, WhatAMemberHasNotAnsweredCountsForTheUser) {
  std::vector<std::uint64_t> tokens;
  service::ChannelNumber channel = 10;
  std::string refused;
  for (; refused.empty() && channel < 1000; ++channel) {
    for (std::size_t i = 0; i < Resources::program_member_max && refused.empty(); ++i) {
      ask({"b", "/pools", "", 7, second_ns}, channel);
      if (std::holds_alternative<service::FailEffect>(effects.at(0)))
        refused = failure();
      else
        tokens.push_back(take_asks().at(0).token);
    }
    resources.on_closed(channel, true, now, effects);
    for (const service::AskEffect& each : take_asks()) {
      EXPECT_EQ(each.kind, wire::EntryKind::peer_cancel);
      EXPECT_EQ(each.member, "b");
    }
  }
  EXPECT_NE(refused.find("of user 1000"), std::string::npos) << refused;
  EXPECT_EQ(tokens.size(), Resources::user_waiting_max);
  EXPECT_EQ(resources.waiting(), tokens.size());
  for (const std::uint64_t token : tokens)
    resources.on_answer(token, fail(Error::cancelled, "cancelled"), now, effects);
  EXPECT_TRUE(effects.empty()) << "its program is gone";
  EXPECT_EQ(resources.waiting(), 0u);
  ask({"b", "/pools", "", 7, second_ns}, channel);
  EXPECT_EQ(take_asks().size(), 1u);
}

// All questions of another agent come by one channel: one user leaves room for others.
TEST_F(ResourcesTest, AMembersQuestionsCountForTheirUsers) {
  ask_as_member({user, 1, "", "", 0, 0});
  const std::uint64_t seen = page().version;
  std::uint64_t number = 1;
  for (std::size_t i = 0; i < Resources::member_user_max; ++i) ask_as_member({user, ++number, "", "", seen, second_ns});
  EXPECT_TRUE(effects.empty());
  ask_as_member({user, ++number, "", "", seen, second_ns});
  EXPECT_NE(failure().find("of user 1000 wait"), std::string::npos);
  ask_as_member({user + 1, ++number, "", "", seen, second_ns});
  EXPECT_TRUE(effects.empty()) << "of another user";
  // A cancelled one is over.
  payload.clear();
  wire::encode(wire::PeerCancel{wire::PeerCancel::What::resources, number}, payload);
  request(wire::EntryKind::peer_cancel, 2, true);
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_EQ(std::get<service::FailEffect>(effects.at(0)).failure.code, Error::cancelled);
  EXPECT_TRUE(std::holds_alternative<service::ReplyEffect>(effects.at(1)));
  effects.clear();
  EXPECT_EQ(resources.waiting(), Resources::member_user_max);
  resources.on_closed(2, true, now, effects);
  EXPECT_EQ(resources.waiting(), 0u);
  EXPECT_TRUE(effects.empty());
}

TEST_F(ResourcesTest, AQuestionThatIsNotWantedIsCancelledHereAndAtTheMember) {
  ask({"", "", "", 0, 0});
  const std::uint64_t seen = page().version;
  const auto cancel = [&](std::uint64_t which) {
    payload.clear();
    wire::encode(wire::PoolCancel{which}, payload);
    request(wire::EntryKind::pool_cancel, 1, false);
  };
  ask({"", "", "", seen, second_ns});
  cancel(ticket);
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_EQ(std::get<service::FailEffect>(effects.at(0)).failure.code, Error::cancelled);
  effects.clear();
  EXPECT_EQ(resources.waiting(), 0u);
  ask({"b", "", "", seen, second_ns});
  const std::uint64_t asked = ticket;
  const service::AskEffect question = take_asks().at(0);
  cancel(asked);
  ASSERT_EQ(effects.size(), 2u);
  const auto told = std::get<service::AskEffect>(effects.at(0));
  EXPECT_EQ(told.kind, wire::EntryKind::peer_cancel);
  EXPECT_EQ(std::get<service::FailEffect>(effects.at(1)).ticket, asked);
  effects.clear();
  wire::PeerResources there{};
  payload.clear();
  question.compose({}, payload);
  ASSERT_TRUE(wire::decode(payload, there));
  const std::uint64_t number = there.number;
  payload.clear();
  told.compose({}, payload);
  wire::PeerCancel cancelled{};
  ASSERT_TRUE(wire::decode(payload, cancelled));
  EXPECT_EQ(cancelled.what, wire::PeerCancel::What::resources);
  EXPECT_EQ(cancelled.number, number);
  resources.on_answer(told.token, service::Answer{.kind = wire::ReplyKind::done}, now, effects);
  resources.on_answer(question.token, fail(Error::cancelled, "cancelled"), now, effects);
  EXPECT_TRUE(effects.empty()) << "answered already";
  EXPECT_EQ(resources.waiting(), 0u);
  cancel(999);  // of another service
  EXPECT_TRUE(effects.empty());
}

// One change that thousands wait for is answered over several rounds, and those that ask the same share a page.
TEST_F(ResourcesTest, ARoundAnswersABoundedPart) {
  for (int i = 0; i < 2000; ++i) pools.add("rank:/a-pool-with-a-longer-name-" + std::to_string(i));
  ask({"", "/pools", "", 0, 0});
  const std::uint64_t seen = page().version;
  constexpr std::size_t programs = 100;
  for (service::ChannelNumber channel = 10; channel < 10 + programs; ++channel) {
    ask({"", "/pools", "", seen, second_ns}, channel);
    ask({"", "/pools", "/pools/rank:/a-pool-" + std::to_string(channel), seen, second_ns}, channel);
  }
  pools.add("hash:/new");
  std::size_t answered = 0, rounds = 0, shared = 0;
  while (resources.waiting() > 0 && rounds < 1000) {
    pass();
    ++rounds;
    std::size_t bytes = 0;
    std::set<const void*> texts;
    for (const service::Effect& each : effects) {
      const auto& listed = std::get<service::ListedEffect>(each);
      if (!texts.insert(listed.texts.get()).second) {
        ++shared;
        continue;
      }
      for (const wire::ListedEntry& entry : listed.message.entries)
        bytes += entry.row_key.size() + entry.column_key.size();
    }
    EXPECT_LE(bytes, Resources::round_bytes + Resources::page_bytes);
    answered += effects.size();
    effects.clear();
  }
  EXPECT_EQ(answered, 2 * programs);
  EXPECT_GT(rounds, 2u);
  EXPECT_GT(shared, programs / 2);
}

}  // namespace
}  // namespace offpath::group
