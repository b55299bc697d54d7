// Messages between lanes on one agent and on several, step by step.
#include "task/lane_messages.h"

#include <gtest/gtest.h>

#include "testing/cpu_time.h"
#include "testing/task/lanes.h"
#include "wire/messages/message_kinds.h"

namespace offpath::task {
namespace {

constexpr std::uint64_t one = 11, other = 12, third = 13;  // sessions

std::string text(std::size_t bytes, char first = 'a') {
  std::string made(bytes, first);
  for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<char>(first + i % 23);
  return made;
}

// Lane 0 and lane 1 of a team of two, on one agent, on two whose links read ranges, and on two whose links pass
// descriptors.
class TwoLanes : public ::testing::TestWithParam<int> {
 protected:
  TwoLanes() {
    EXPECT_TRUE(agents_.open(0, one, 0, 2));
    agents_.settle();
    EXPECT_TRUE(agents_.open(far_, other, 1, 2));
    agents_.settle();
  }
  // The bytes that a posted receive returns.
  std::optional<std::string> received(std::uint32_t tag = 0, std::uint64_t room = 1 << 20) {
    const std::uint64_t operation = agents_.receive(far_, other, 0, tag, room);
    agents_.settle();
    return agents_.message(operation);
  }

  LaneAgents agents_{GetParam() == 0 ? 1u : 2u,
                     {.lane_bytes_max = 200'000, .bytes_max = 300'000, .lane_bytes_min = 1000},
                     GetParam() == 2};
  std::size_t far_ = GetParam() == 0 ? 0 : 1;
};
const auto way_name = [](const auto& way) {
  return way.param == 0 ? "OneAgent" : way.param == 1 ? "Ranges" : "Descriptors";
};
INSTANTIATE_TEST_SUITE_P(Ways, TwoLanes, ::testing::Values(0, 1, 2), way_name);

class LanesApart : public TwoLanes {};  // on two agents
INSTANTIATE_TEST_SUITE_P(Ways, LanesApart, ::testing::Values(1, 2), way_name);

TEST_P(TwoLanes, ASendReturnsBeforeItIsReceived) {
  for (const std::size_t bytes : {0u, 5u, 1024u, 5000u, 40'000u, 100'000u}) {
    const std::uint64_t sent = agents_.send(0, one, 1, 7, text(bytes));
    ASSERT_NE(agents_.outcome(sent), nullptr);
    EXPECT_TRUE(agents_.outcome(sent)->status);
    EXPECT_EQ(received(7), text(bytes));
  }
  EXPECT_EQ(agents_.lanes(0).counters().held, 0u);
  EXPECT_EQ(agents_.lanes(0).counters().held_bytes, 0u);
  EXPECT_EQ(agents_.used_bytes(far_), 0u);
}

TEST_P(TwoLanes, AReceiveWaitsForWhatIsSentLater) {
  const std::uint64_t second = agents_.receive(far_, other, 0, 2), first = agents_.receive(far_, other, 0, 1);
  agents_.settle();
  EXPECT_EQ(agents_.outcome(first), nullptr);
  agents_.send(0, one, 1, 1, "one");
  agents_.settle();
  EXPECT_EQ(agents_.message(first), "one");
  EXPECT_EQ(agents_.outcome(second), nullptr);
  agents_.send(0, one, 1, 2, text(50'000));
  agents_.settle();
  EXPECT_EQ(agents_.message(second), text(50'000));
}

TEST_P(TwoLanes, MessagesUnderATagComeInTheirOrder) {
  for (char c = 'a'; c < 'k'; ++c) agents_.send(0, one, 1, 3, text(c % 2 == 0 ? 10 : 5000, c));
  std::vector<std::uint64_t> operations;
  for (int i = 0; i < 5; ++i) operations.push_back(agents_.receive(far_, other, 0, 3));
  agents_.settle();
  for (int i = 5; i < 10; ++i) operations.push_back(agents_.receive(far_, other, 0, 3));
  agents_.settle();
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(agents_.message(operations[static_cast<std::size_t>(i)]),
              text((('a' + i) % 2) == 0 ? 10 : 5000, static_cast<char>('a' + i)))
        << i;
}

TEST_P(TwoLanes, WhatDoesNotFitStays) {
  agents_.send(0, one, 1, 0, text(5000));
  const std::uint64_t small = agents_.receive(far_, other, 0, 0, 4999);
  agents_.settle();
  EXPECT_EQ(agents_.error(small), Error::too_large);
  EXPECT_EQ(agents_.outcome(small)->bytes, 5000u);
  EXPECT_EQ(received(0, 5000), text(5000));
}

TEST_P(TwoLanes, ADeadlineEndsAWaitAndLosesNothing) {
  const std::uint64_t late = agents_.receive(far_, other, 0, 0, 100, agents_.now + 1000);
  agents_.settle();
  agents_.pass(999);
  EXPECT_EQ(agents_.outcome(late), nullptr);
  agents_.pass(1);
  EXPECT_EQ(agents_.error(late), Error::timeout);
  agents_.send(0, one, 1, 0, "there");
  agents_.settle();
  EXPECT_EQ(received(), "there");
}

TEST_P(TwoLanes, TheEndOfACallEndsItsWait) {
  const std::uint64_t waiting = agents_.receive(far_, other, 0, 0);
  agents_.settle();
  agents_.end_call(far_, waiting);
  EXPECT_EQ(agents_.error(waiting), Error::cancelled);
  agents_.send(0, one, 1, 0, "there");
  agents_.settle();
  EXPECT_EQ(received(), "there");
  EXPECT_EQ(agents_.lanes(far_).next_deadline(), never);
}

TEST_P(LanesApart, WhoeverEndsWhileItsMessageIsUnderWayHasNotTakenIt) {
  const std::uint64_t waiting = agents_.receive(far_, other, 0, 0);
  agents_.settle();
  agents_.send(0, one, 1, 0, text(50'000));
  agents_.step();  // the message is under way, or its memory is being read
  agents_.end_call(far_, waiting);
  agents_.settle();
  EXPECT_EQ(agents_.error(waiting), Error::cancelled);
  EXPECT_EQ(received(), text(50'000));
}

TEST_P(TwoLanes, SendsWaitForRoomInTheirOrder) {
  for (int i = 0; i < 2; ++i) EXPECT_NE(agents_.outcome(agents_.send(0, one, 1, 0, text(100'000))), nullptr);
  const std::uint64_t full = agents_.send(0, one, 1, 0, text(1500, 'f')), behind = agents_.send(0, one, 1, 0, "behind");
  const std::uint64_t late = agents_.send(0, one, 1, 0, "late", agents_.now + 10);
  EXPECT_EQ(agents_.outcome(full), nullptr);
  EXPECT_EQ(agents_.outcome(behind), nullptr);
  agents_.pass(10);
  EXPECT_EQ(agents_.error(late), Error::timeout);
  EXPECT_EQ(received(), text(100'000));
  EXPECT_NE(agents_.outcome(full), nullptr);
  EXPECT_NE(agents_.outcome(behind), nullptr);
  EXPECT_EQ(received(), text(100'000));
  EXPECT_EQ(received(), text(1500, 'f'));
  EXPECT_EQ(received(), "behind");
}

TEST_P(TwoLanes, AFullTeamLeavesOthersTheirShare) {
  ASSERT_TRUE(agents_.open(0, third, 0, 1, "third"));
  agents_.settle();
  for (int i = 0; i < 2; ++i) agents_.send(0, one, 1, 0, text(100'000));
  ASSERT_NE(agents_.outcome(agents_.send(0, third, 0, 0, text(100'000))), nullptr);
  const std::uint64_t too_much = agents_.send(0, third, 0, 0, text(2000));
  EXPECT_EQ(agents_.outcome(too_much), nullptr);  // the agent is full
  const std::uint64_t own = agents_.receive(0, third, 0, 0);
  EXPECT_EQ(agents_.message(own), text(100'000));
  EXPECT_NE(agents_.outcome(too_much), nullptr);
  ASSERT_TRUE(agents_.open(0, 14, 0, 1, "fourth"));
  agents_.send(0, third, 0, 0, text(98'000));
  EXPECT_NE(agents_.outcome(agents_.send(0, 14, 0, 0, text(1000))), nullptr);  // a lane has a minimum in any case
  EXPECT_EQ(agents_.outcome(agents_.send(0, 14, 0, 0, text(1001))), nullptr);
}

TEST_P(TwoLanes, AClosedLaneIsGone) {
  agents_.send(0, one, 1, 0, "first");
  EXPECT_EQ(received(), "first");
  agents_.send(0, one, 1, 0, "unread");
  agents_.send(far_, other, 0, 0, "unread too");
  const std::uint64_t waiting = agents_.receive(far_, other, 0, 5);
  agents_.settle();
  agents_.close(0, one);
  agents_.settle();
  agents_.pass(second_ns);
  agents_.settle();
  EXPECT_EQ(agents_.error(waiting), Error::peer_lost);
  EXPECT_EQ(agents_.error(agents_.receive(far_, other, 0, 0)), Error::peer_lost);
  EXPECT_EQ(agents_.error(agents_.send(far_, other, 0, 0, "x")), Error::peer_lost);
  EXPECT_EQ(agents_.lanes(far_).counters().held, 0u);
  // A later session in its place is a different one.
  ASSERT_TRUE(agents_.open(0, third, 0, 2));
  agents_.settle();
  const std::uint64_t again = agents_.receive(far_, other, 0, 5);
  agents_.send(0, third, 1, 5, "again");
  agents_.settle();
  EXPECT_EQ(agents_.message(again), "again");
}

TEST_P(TwoLanes, ALaneHasOneSession) {
  for (std::size_t place = 0; place <= far_; ++place) {
    const Status taken = agents_.open(place, third, 1, 2);
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().code, Error::exists);
    EXPECT_NE(taken.error().message.find(place == far_ ? "this agent" : "agent dpu1"), std::string::npos)
        << taken.error().message;
  }
  EXPECT_TRUE(agents_.open(0, third, 1, 3));            // another team, because it has more lanes
  EXPECT_TRUE(agents_.open(0, 14, 1, 2, "job", 1001));  // another user's
  EXPECT_TRUE(agents_.open(0, 15, 1, 2, "another job"));
}

TEST_P(TwoLanes, TeamsDoNotMeet) {
  ASSERT_TRUE(agents_.open(far_, third, 1, 2, "job", 1001));
  ASSERT_TRUE(agents_.open(far_, 14, 1, 3));
  agents_.settle();
  agents_.send(0, one, 1, 0, "mine");
  const std::uint64_t stranger = agents_.receive(far_, third, 0, 0), wider = agents_.receive(far_, 14, 0, 0);
  agents_.settle();
  EXPECT_EQ(agents_.outcome(stranger), nullptr);
  EXPECT_EQ(agents_.outcome(wider), nullptr);
  EXPECT_EQ(received(), "mine");
}

TEST_P(TwoLanes, LanesThatThereAreNot) {
  EXPECT_EQ(agents_.error(agents_.send(0, one, 2, 0, "x")), Error::invalid);
  EXPECT_EQ(agents_.error(agents_.receive(0, one, 2, 0)), Error::invalid);
  EXPECT_EQ(agents_.error(agents_.receive(0, 99, 0, 0)), Error::unsupported);  // no team
  const std::uint64_t to_itself = agents_.receive(0, one, 0, 0);
  agents_.send(0, one, 0, 0, "me");
  EXPECT_EQ(agents_.message(to_itself), "me");
}

TEST(LaneMessages, OfTwoClaimsAtOnceTheFirstNameHasTheLane) {
  LaneAgents agents(3);
  ASSERT_TRUE(agents.open(1, one, 0, 2));
  ASSERT_TRUE(agents.open(2, other, 0, 2));  // neither knows of the other
  agents.settle();
  EXPECT_EQ(agents.error(agents.send(2, other, 1, 0, "x")), Error::exists);
  ASSERT_TRUE(agents.open(0, third, 1, 2));
  agents.settle();
  const std::uint64_t received = agents.receive(0, third, 0, 0);
  agents.send(1, one, 1, 0, "mine");
  agents.settle();
  EXPECT_EQ(agents.message(received), "mine");
}

TEST(LaneMessages, WhenAnAgentDiesItsLanesAreGone) {
  LaneAgents agents(2);
  ASSERT_TRUE(agents.open(0, one, 0, 2));
  ASSERT_TRUE(agents.open(1, other, 1, 2));
  agents.settle();
  const std::uint64_t waiting = agents.receive(1, other, 0, 0);
  agents.settle();
  agents.kill(0);
  agents.settle();
  EXPECT_EQ(agents.outcome(waiting), nullptr);  // a lost channel does not mean a dead member
  agents.tell_dead();
  agents.settle();
  EXPECT_EQ(agents.error(waiting), Error::peer_lost);
  // Its next process has no lanes until they are opened there.
  agents.start(0);
  agents.settle();
  EXPECT_EQ(agents.error(agents.receive(1, other, 0, 0)), Error::peer_lost);
  ASSERT_TRUE(agents.open(0, one, 0, 2));
  agents.settle();
  agents.send(0, one, 1, 0, "anew");
  const std::uint64_t received = agents.receive(1, other, 0, 0);
  agents.settle();
  EXPECT_EQ(agents.message(received), "anew");
}

// The receiver has a message, but its acknowledgement is lost with the channel.
TEST(LaneMessages, WhatWasTakenIsNotGivenAgainWhenItsAnswerWasLost) {
  LaneAgents agents(2);
  ASSERT_TRUE(agents.open(0, one, 0, 2));
  ASSERT_TRUE(agents.open(1, other, 1, 2));
  agents.settle();
  agents.send(0, one, 1, 0, "first");
  agents.send(0, one, 1, 0, "second");
  const std::uint64_t first = agents.receive(1, other, 0, 0);
  while (agents.outcome(first) == nullptr) ASSERT_TRUE(agents.step());
  EXPECT_EQ(agents.message(first), "first");
  agents.cut(0, 1);
  agents.cut(1, 0);
  agents.settle();
  const std::uint64_t second = agents.receive(1, other, 0, 0);
  agents.settle();
  agents.pass(second_ns);
  agents.settle();
  EXPECT_EQ(agents.message(second), "second");
  EXPECT_EQ(agents.lanes(0).counters().held, 0u);
}

TEST(LaneMessages, WithoutMemoryAReceiveTriesAgain) {
  LaneAgents agents(2);
  ASSERT_TRUE(agents.open(0, one, 0, 2));
  ASSERT_TRUE(agents.open(1, other, 1, 2));
  agents.settle();
  agents.room = false;
  agents.send(0, one, 1, 0, text(50'000));
  const std::uint64_t received = agents.receive(1, other, 0, 0);
  agents.settle();
  EXPECT_EQ(agents.outcome(received), nullptr);
  agents.room = true;
  agents.pass(second_ns);
  agents.settle();
  EXPECT_EQ(agents.message(received), text(50'000));
}

TEST(LaneMessages, DescriptorsAreCountedToo) {
  LaneAgents agents(1, {.descriptors_max = 3, .lane_descriptors_min = 1});
  ASSERT_TRUE(agents.open(0, one, 0, 1, "a"));
  ASSERT_TRUE(agents.open(0, other, 0, 1, "b"));
  for (int i = 0; i < 3; ++i) EXPECT_NE(agents.outcome(agents.send(0, one, 0, 0, text(2000))), nullptr);
  const std::uint64_t full = agents.send(0, one, 0, 0, text(2000));
  EXPECT_EQ(agents.outcome(full), nullptr);
  EXPECT_NE(agents.outcome(agents.send(0, other, 0, 0, text(2000))), nullptr);  // a lane may always have one
  EXPECT_EQ(agents.outcome(agents.send(0, other, 0, 0, text(2000))), nullptr);
  agents.close(0, other);
  EXPECT_EQ(agents.outcome(full), nullptr);
  EXPECT_EQ(agents.message(agents.receive(0, one, 0, 0)), text(2000));
  EXPECT_NE(agents.outcome(full), nullptr);
}

TEST(LaneMessages, OnlyMembersMayAsk) {
  LaneAgents agents(1);
  ASSERT_TRUE(agents.open(0, one, 0, 1));
  service::Effects effects;
  std::vector<std::byte> payload;
  wire::encode(wire::PeerReceive{1000, one, 1, 100, 0, 1, 0, 0, 0, "x", "job"}, payload);
  agents.lanes(0).on_peer_request(7, {1, static_cast<std::uint8_t>(wire::EntryKind::peer_receive), payload}, false, 0,
                                  effects);
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_EQ(std::get<service::FailEffect>(effects[0]).failure.code, Error::denied);
  // And nothing is revealed about a lane of another user, or about one that belonged to another session.
  effects.clear();
  payload.clear();
  wire::encode(wire::PeerReceive{1001, one, 1, 100, 0, 1, 0, 0, 0, "x", "job"}, payload);
  agents.lanes(0).on_peer_request(7, {2, static_cast<std::uint8_t>(wire::EntryKind::peer_receive), payload}, true, 0,
                                  effects);
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_EQ(std::get<service::FailEffect>(effects[0]).failure.code, Error::not_found);
}

// Messages between two lanes take the same time, however many other lanes of the agent wait.
TEST(LaneMessages, WhatOtherLanesWaitForSlowsNobodyDown) {
  constexpr std::uint32_t others = 100;
  LaneAgents agents(1);
  for (std::uint32_t lane = 0; lane < others + 2; ++lane) ASSERT_TRUE(agents.open(0, 100 + lane, lane, others + 2));
  std::uint32_t tag = 0;
  std::vector<TimeNs> took;
  const auto messages_take = [&] {
    took.push_back(least_cpu_ns([&] {
      for (int i = 0; i < 100; ++i) {
        agents.send(0, 100, 1, 0, "message");
        EXPECT_TRUE(agents.message(agents.receive(0, 101, 0, 0)));
      }
    }));
  };
  const auto wait = [&](std::uint32_t receives) {
    for (; tag < receives; ++tag)
      for (std::uint32_t lane = 2; lane < others + 2; ++lane)
        agents.receive(0, 100 + lane, 0, tag, 1, agents.now + second_ns + tag);
  };
  wait(1);
  messages_take();
  wait(500);
  messages_take();
  EXPECT_LT(took[1], 20 * took[0]) << "of 100 messages, with 50,000 receives that wait and with 100";
  EXPECT_EQ(agents.lanes(0).next_deadline(), agents.now + second_ns);
  agents.pass(second_ns + 99);
  EXPECT_EQ(agents.lanes(0).counters().failed, 100u * others);
  EXPECT_EQ(agents.lanes(0).next_deadline(), agents.now + 1);
}

}  // namespace
}  // namespace offpath::task
