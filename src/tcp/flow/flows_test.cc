// The flows of a stack and their shared state, without the protocol: beginning, end, waiting and look-up.
#include "tcp/flow/flows.h"

#include <gtest/gtest.h>

#include "tcp/flow/waiting.h"
#include "testing/tcp/stack_parts.h"

namespace offpath::tcp {
namespace {

constexpr TimeNs start = second_ns;

TEST(StackContext, RoutesByPrefixAndGateway) {
  StackOptions options;
  const IpAddress gateway = test_address(0x0a0000fe);
  options.v4.gateway = options.v6.gateway = gateway;
  const StackParts parts(options);
  EXPECT_EQ(parts.context.next_hop(test_address(0x0a000063)), test_address(0x0a000063));
  EXPECT_EQ(parts.context.next_hop(test_address(0x0b000001)), gateway);
  EXPECT_EQ(parts.context.own_mss(test_family()), 1460);
  EXPECT_EQ(parts.context.own_scale(), 7);
}

TEST(StackContext, GivesEachConnectionNumbersOfItsOwnThatGrowWithTime) {
  const StackParts parts;
  FlowKey other = StackParts::key;
  ++other.remote.port;
  const Sequence first = parts.context.initial_sequence(StackParts::key, start);
  EXPECT_NE(first, parts.context.initial_sequence(other, start));
  EXPECT_EQ(parts.context.initial_sequence(StackParts::key, start + 4000), first + 1u);
}

TEST(FrameQueue, KeepsFramesThatNoFlowSendsUntilABurstHasRoom) {
  StackParts parts;
  Segment segment;
  segment.key = StackParts::key;
  for (std::size_t i = 0; i < FrameQueue::strays_max + 1; ++i) parts.frames.send(segment, StackParts::peer_mac);
  EXPECT_EQ(parts.context.counters.drops[static_cast<std::size_t>(Drop::no_room)], 1u);
  EXPECT_EQ(parts.sent([] {}).size(), 64u);
  EXPECT_FALSE(parts.frames.empty());
}

TEST(FrameQueue, RefusesWithWhatTheSegmentAcknowledges) {
  StackParts parts;
  Segment segment;
  segment.key = StackParts::key;
  segment.sequence = Sequence(10);
  segment.flags = flag::syn;
  parts.frames.refuse(segment, StackParts::peer_mac);
  segment.flags = flag::ack;
  segment.acknowledgement = Sequence(77);
  parts.frames.refuse(segment, StackParts::peer_mac);
  segment.flags = flag::rst;
  parts.frames.refuse(segment, StackParts::peer_mac);  // never answered
  const auto sent = parts.sent([] {});
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].flags, flag::rst | flag::ack);
  EXPECT_EQ(sent[0].acknowledgement, Sequence(11));
  EXPECT_EQ(sent[1].flags, flag::rst);
  EXPECT_EQ(sent[1].sequence, Sequence(77));
  EXPECT_EQ(parts.context.counters.refused, 1u);
}

TEST(Routes, AskForTheNextHopAndNameTheFlowThatWaits) {
  StackParts parts;
  Flow& flow = parts.established(start);
  EXPECT_EQ(parts.routes.await(flow, start), nullptr);
  parts.routes.send_messages();
  static_cast<void>(parts.sent([] {}));
  ASSERT_EQ(parts.burst.size(), 1u);
  EXPECT_EQ(read_ethernet_header(parts.burst[0].header.data()).target, group_mac(StackParts::peer));
  parts.routes.receive({true, StackParts::peer_mac, StackParts::peer, StackParts::own_mac, StackParts::own}, start);
  const auto woken = parts.routes.next_woken(start);
  ASSERT_TRUE(woken);
  EXPECT_EQ(woken->flow, flow.index);
  ASSERT_NE(parts.routes.await(flow, start), nullptr);
  EXPECT_EQ(*parts.routes.find(flow, start), StackParts::peer_mac);
}

TEST(Flows, AreFoundUntilTheirOwnerWasToldThatTheyAreGone) {
  StackParts parts;
  Flow& flow = parts.established(start);
  const FlowId id = Flows::id_of(flow);
  EXPECT_EQ(parts.flows.find(id), &flow);
  EXPECT_EQ(parts.flows.index_of(StackParts::key), flow.index);
  EXPECT_EQ(parts.changes(), change::connected);
  flow.released = true;
  parts.flows.end(flow, FlowError::none);
  EXPECT_EQ(parts.flows.size(), 0u);
  EXPECT_EQ(parts.flows.find(id), &flow);
  EXPECT_EQ(parts.changes(), change::gone);
  EXPECT_EQ(parts.flows.find(id), nullptr);
  EXPECT_EQ(parts.context.counters.closed, 1u);
}

TEST(Flows, TellOneChangeForAllThatHappened) {
  StackParts parts;
  Flow& flow = parts.established(start);
  parts.flows.note(flow, change::received);
  parts.flows.end(flow, FlowError::reset);
  const auto what = parts.flows.next_change();
  ASSERT_TRUE(what);
  EXPECT_EQ(what->what, change::connected | change::received | change::closed);
  EXPECT_EQ(what->error, FlowError::reset);
  EXPECT_EQ(what->tag, 7u);
  EXPECT_FALSE(parts.flows.next_change());
}

TEST(Flows, AreReadyOnceUntilTheyAreTaken) {
  StackParts parts;
  Flow& flow = parts.established(start);
  parts.flows.make_ready(flow);
  EXPECT_EQ(parts.flows.ready(), 1u);
  EXPECT_EQ(parts.flows.take_ready(), &flow);
  parts.flows.make_ready(flow);
  parts.flows.end(flow, FlowError::none);
  EXPECT_EQ(parts.flows.take_ready(), nullptr);
  EXPECT_EQ(parts.flows.ready(), 0u);
}

TEST(Flows, TakeThePlaceOfTheOldestInTimeWait) {
  StackOptions options;
  options.flows_max = 1;
  StackParts parts(options);
  Flow& flow = parts.established(start);
  FlowKey other = StackParts::key;
  ++other.remote.port;
  EXPECT_EQ(parts.flows.new_flow(other, 8, 1000, {}, start), nullptr);
  flow.released = true;
  static_cast<void>(parts.flows.take_ready());
  parts.flows.enter(flow, FlowState::time_wait, start);
  static_cast<void>(parts.changes());
  EXPECT_NE(parts.flows.new_flow(other, 8, 1000, {}, start), nullptr);
  EXPECT_EQ(parts.flows.index_of(StackParts::key), FlowTable::nobody);
}

TEST(Flows, ResetTheOldestOrphanBeyondTheBound) {
  StackOptions options;
  options.orphans_max = 0;
  StackParts parts(options);
  parts.know_peer(start);
  Flow& flow = parts.established(start, 100);
  flow.released = true;
  const auto sent = parts.sent([&] { parts.flows.become_orphan(flow, start); });
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(sent[0].has(flag::rst));
  EXPECT_EQ(flow.state, FlowState::closed);
  EXPECT_EQ(parts.context.counters.orphans_reset, 1u);
}

TEST(Flows, ChallengeSeldom) {
  StackParts parts;
  Flow& flow = parts.established(start);
  for (int i = 0; i < 3; ++i) parts.flows.challenge(flow, start);
  EXPECT_EQ(parts.context.counters.challenges, 1u);
  parts.flows.challenge(flow, start + second_ns);
  EXPECT_EQ(parts.context.counters.challenges, 2u);
}

TEST(Flows, FireTheirTimersWhenTheyAreDue) {
  StackParts parts;
  Flow& flow = parts.established(start);
  flow.ack_due = start + 40 * millisecond_ns;
  parts.flows.arm(flow);
  EXPECT_EQ(parts.flows.next_due_flow(start + millisecond_ns), nullptr);
  EXPECT_EQ(parts.flows.next_due_flow(start + second_ns), &flow);
}

TEST(Positions, AdvertiseNoSmallPartOfAWindow) {
  StackParts parts;
  Flow& flow = parts.established(start);
  flow.allowed = 10'000;
  flow.receive_edge = flow.receive_next + 10'000u;
  EXPECT_EQ(advertise(flow), 10'000);
  flow.allowed += 999;  // less than a segment
  EXPECT_EQ(advertise(flow), 10'000);
  flow.allowed += 1;
  EXPECT_EQ(advertise(flow), 11'000);
  EXPECT_EQ(data_end(flow), flow.una);
  flow.offered = 300;
  EXPECT_EQ(data_end(flow), flow.una + 300u);
}

TEST(Waiting, EndsWithAnAcknowledgementOfASegmentAfterRelease) {
  StackParts parts;
  Flow& flow = parts.established(start, 10'000);
  flow.next = flow.una + 5000u;
  begin_waiting(flow, start);
  flow.released = true;
  flow.acknowledged += 1;
  wait_on(flow, start + second_ns);
  EXPECT_EQ(flow.slow->waits_since, start);
  flow.acknowledged += flow.mss;
  wait_on(flow, start + second_ns);
  EXPECT_EQ(flow.slow->waits_since, start + second_ns);
}

TEST(Waiting, ProbesTheTailOnlyWhereSackShowsWhatIsMissing) {
  StackParts parts;
  Flow& flow = parts.established(start, 10'000);
  flow.next = flow.una + 5000u;
  flow.rtt.add(10 * millisecond_ns, {});
  await_acknowledgement(flow, {}, start);
  EXPECT_FALSE(flow.tail_due);
  EXPECT_EQ(flow.retransmit_due, start + 200 * millisecond_ns);
  flow.sack = true;
  await_acknowledgement(flow, {}, start);
  EXPECT_TRUE(flow.tail_due);
  EXPECT_EQ(flow.retransmit_due, start + 22 * millisecond_ns);
}

}  // namespace
}  // namespace offpath::tcp
