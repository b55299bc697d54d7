// Parts that established flows use, each alone: acknowledgement, ECN, reception, arrival, transmission, timers.
#include <gtest/gtest.h>

#include "tcp/stack/flow_timers.h"
#include "tcp/stack/handshake.h"
#include "tcp/stack/segment_arrival.h"
#include "tcp/stack/transmission.h"
#include "testing/tcp/stack_parts.h"

namespace offpath::tcp {
namespace {

constexpr TimeNs start = second_ns;

struct DataParts : StackParts {
  using StackParts::StackParts;
  HandedFlows handed{context, other, routes};
  Listeners listeners{};
  EcnFeedback ecn{context};
  Recovery recovery{context, flows};
  Acknowledgement acknowledgement{context, flows, ecn, recovery};
  Reception reception{context, flows, ecn, owner};
  SegmentArrival arrival{context, other, frames, flows, listeners, handed, ecn, recovery, owner};
  Transmission transmission{context, other, frames, routes, flows, handed, owner};
  FlowTimers timers{context, flows, recovery};
  std::vector<std::byte> text = std::vector<std::byte>(1000);
};

TEST(Transmission, SendsWhatTheCongestionWindowAllowsInSegments) {
  DataParts parts;
  parts.know_peer(start);
  Flow& flow = parts.established(start, 50'000);
  const auto sent = parts.sent([&] { parts.transmission.serve(flow, start); });
  ASSERT_EQ(sent.size(), flow.congestion.window / 1000);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(sent[i].sequence, Sequence(1000) + static_cast<std::uint32_t>(1000 * i));
    EXPECT_EQ(sent[i].payload.size(), 1000u);
  }
  EXPECT_NE(flow.retransmit_due, never);
}

TEST(Transmission, EndsTheStreamWithFin) {
  DataParts parts;
  parts.know_peer(start);
  Flow& flow = parts.established(start, 500);
  flow.fin_wanted = true;
  const auto sent = parts.sent([&] { parts.transmission.serve(flow, start); });
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].payload.size(), 500u);
  EXPECT_TRUE(sent[0].has(flag::fin | flag::psh));
  EXPECT_EQ(flow.state, FlowState::fin_wait_1);
}

TEST(Transmission, WaitsForItsNextHop) {
  DataParts parts;
  Flow& flow = parts.established(start, 500);
  EXPECT_TRUE(parts.sent([&] { parts.transmission.serve(flow, start); }).empty());
  EXPECT_NE(flow.retransmit_due, never);
  parts.know_peer(start);
  parts.flows.wake_waiting(start);
  EXPECT_TRUE(flow.is_ready);
}

TEST(Acknowledgement, MovesTheWindowAndTellsTheOwner) {
  DataParts parts;
  Flow& flow = parts.established(start, 5000);
  flow.next = flow.una + 5000u;
  static_cast<void>(parts.changes());
  Segment segment = DataParts::segment(flow);
  segment.acknowledgement = flow.una + 3000u;
  segment.window = 7000;
  EXPECT_TRUE(parts.acknowledgement.receive(flow, segment, start));
  EXPECT_EQ(flow.acknowledged, 3000u);
  EXPECT_EQ(flow.send_window, 7000u);
  EXPECT_EQ(parts.changes(), change::acknowledged);
  segment.acknowledgement = flow.next + 1u;  // acknowledges bytes that were never sent
  EXPECT_FALSE(parts.acknowledgement.receive(flow, segment, start));
  EXPECT_EQ(parts.context.counters.challenges, 1u);
}

TEST(Acknowledgement, FindsALossAfterThreeDuplicates) {
  DataParts parts;
  Flow& flow = parts.established(start, 5000);
  flow.next = flow.una + 5000u;
  const Segment segment = DataParts::segment(flow);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(parts.acknowledgement.receive(flow, segment, start));
  EXPECT_FALSE(flow.repairing);
  EXPECT_TRUE(parts.acknowledgement.receive(flow, segment, start));
  EXPECT_TRUE(flow.repairing);
  EXPECT_EQ(parts.context.counters.repairs, 1u);
  ASSERT_NE(flow.slow->scoreboard, nullptr);
  EXPECT_EQ(flow.slow->scoreboard->lost()->begin, flow.una);
}

// The clock of timestamps ticks each millisecond, so a tick is inexact by one.
TEST(Acknowledgement, TicksOfTimestampsDoNotEnterAFastPath) {
  DataParts parts;
  Flow& flow = parts.established(start, 90'000);
  flow.timestamps = true;
  const auto acknowledge = [&](std::uint32_t ticks) {
    flow.next = flow.una + 1000u;
    Segment segment = DataParts::segment(flow);
    segment.acknowledgement = flow.next;
    segment.options.timestamps = Timestamps{1, parts.context.timestamp(flow.timestamp_offset, start) - ticks};
    EXPECT_TRUE(parts.acknowledgement.receive(flow, segment, start));
    return flow.rtt.smoothed_ns();
  };
  EXPECT_EQ(acknowledge(1), 0) << "nothing is known yet, and this tells nothing";
  flow.rtt.add(30 * microsecond_ns, parts.context.options.rto);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(acknowledge(i % 2), 30 * microsecond_ns);
  EXPECT_GT(acknowledge(40), 4 * millisecond_ns) << "the path has become longer";
}

// On a path of many ticks they also show shorter round trips, which nothing else measures during a recovery.
TEST(Acknowledgement, TicksOfTimestampsMeasureALongPathDuringARecovery) {
  DataParts parts;
  Flow& flow = parts.established(start, 90'000);
  flow.timestamps = flow.repairing = true;
  flow.rtt.add(100 * millisecond_ns, parts.context.options.rto);
  for (int i = 0; i < 20; ++i) {
    flow.next = flow.una + 2000u;
    flow.slow->recovery_point = flow.next;
    Segment segment = DataParts::segment(flow);
    segment.acknowledgement = flow.una + 1000u;
    segment.options.timestamps = Timestamps{1, parts.context.timestamp(flow.timestamp_offset, start) - 20};
    EXPECT_TRUE(parts.acknowledgement.receive(flow, segment, start));
  }
  EXPECT_LT(flow.rtt.smoothed_ns(), 30 * millisecond_ns);
}

// DCTCP's rounds use that round trip: it takes a share of marks every 30 us, not every millisecond.
TEST(Acknowledgement, RoundsOfDctcpAreThoseOfAFastPath) {
  DataParts parts({}, "dctcp");
  Flow& flow = parts.established(start, 90'000);
  flow.timestamps = flow.ecn = true;
  flow.rtt.add(30 * microsecond_ns, parts.context.options.rto);
  flow.congestion.own.dctcp.share = 0;
  TimeNs now = start;
  for (int i = 0; i < 20; ++i, now += 31 * microsecond_ns) {
    flow.next = flow.una + 1000u;
    Segment segment = DataParts::segment(flow, flag::ack | flag::ece);
    segment.acknowledgement = flow.next;
    // Sent before the last tick, now and then.
    segment.options.timestamps = Timestamps{1, parts.context.timestamp(flow.timestamp_offset, now) - (i % 3 == 0)};
    EXPECT_TRUE(parts.acknowledgement.receive(flow, segment, now));
  }
  EXPECT_GT(flow.congestion.own.dctcp.share, 0.6) << "a sixteenth of the rest in each round";
  EXPECT_EQ(now - 31 * microsecond_ns, flow.congestion.own.dctcp.round_began);
}

TEST(EcnFeedback, EchoesMarksUntilTheSenderHasSlowedDown) {
  DataParts parts;
  Flow& flow = parts.established(start);
  flow.ecn = true;
  Segment segment = DataParts::segment(flow);
  segment.ecn = Ecn::congested;
  parts.ecn.take_mark(flow, segment);
  segment.ecn = Ecn::capable_0;
  parts.ecn.take_mark(flow, segment);
  EXPECT_TRUE(flow.ecn_echo);
  segment.flags |= flag::cwr;
  parts.ecn.take_mark(flow, segment);
  EXPECT_FALSE(flow.ecn_echo);
  EXPECT_EQ(parts.context.counters.marked_in, 1u);
}

TEST(EcnFeedback, SlowsDownOnceForAWindow) {
  DataParts parts;
  Flow& flow = parts.established(start, 5000);
  flow.ecn = true;
  flow.next = flow.una + 5000u;
  const std::uint32_t before = flow.congestion.window;
  const Segment echo = DataParts::segment(flow, flag::ack | flag::ece);
  EXPECT_TRUE(parts.ecn.echoes(flow, echo, {}, start));
  parts.ecn.take_echo(flow, true, 5000, start);
  const std::uint32_t after = flow.congestion.window;
  EXPECT_LT(after, before);
  parts.ecn.take_echo(flow, true, 5000, start);
  EXPECT_EQ(flow.congestion.window, after);
  Segment out;
  EcnFeedback::mark_capable(flow, out, true);
  EXPECT_TRUE(out.has(flag::cwr));
  EXPECT_EQ(out.ecn, Ecn::capable_0);
}

// One acknowledgement of ten segments, of which four were marked: DCTCP gets four marks, not ten or zero.
TEST(EcnFeedback, TellsDctcpWhichShareOfABurstWasMarked) {
  DataParts parts({}, "dctcp");
  Flow& flow = parts.established(start, 90'000);
  flow.ecn = true;
  be_accurate(flow);
  flow.rtt.add(30 * microsecond_ns, parts.context.options.rto);
  flow.congestion.own.dctcp.share = 0;
  std::uint32_t marked = 0;
  TimeNs now = start;
  for (int i = 0; i < 60; ++i, now += 31 * microsecond_ns) {
    const std::uint32_t bytes = 10'000;
    flow.next = flow.una + bytes;
    Segment segment = DataParts::segment(flow, flag::ack | ace_flags(5u + 4 * static_cast<unsigned>(i + 1)));
    segment.acknowledgement = flow.next;
    segment.options.ecn_bytes = EcnBytes{.capable_0 = 1, .congested = marked += 4 * bytes / 10};
    flow.congestion.window = bytes;
    EXPECT_TRUE(parts.acknowledgement.receive(flow, segment, now));
  }
  EXPECT_NEAR(flow.congestion.own.dctcp.share, 0.4, 0.02);
  EXPECT_TRUE(flow.slow->accurate->may_mark());
}

// Eight packets of ten bytes, all marked: their number has wrapped, and the path has changed nothing.
TEST(EcnFeedback, KnowsHowManySmallPacketsWereAcknowledged) {
  for (const bool with_option : {false, true}) {
    DataParts parts;
    parts.know_peer(start);
    Flow& flow = parts.established(start);
    flow.ecn = true;
    flow.nagle = false;
    be_accurate(flow);
    for (int i = 0; i < 8; ++i) {
      flow.offered += 10;
      ASSERT_EQ(parts.sent([&] { parts.transmission.serve(flow, start); }).size(), 1u);
    }
    const std::uint32_t before = flow.congestion.window;
    Segment segment = DataParts::segment(flow, flag::ack | ace_flags(5 + 8));
    segment.acknowledgement = flow.next;
    if (with_option) segment.options.ecn_bytes = EcnBytes{.capable_0 = 1, .congested = 80};
    EXPECT_TRUE(parts.acknowledgement.receive(flow, segment, start));
    EXPECT_LT(flow.congestion.window, before) << with_option;
    EXPECT_TRUE(flow.slow->accurate->may_mark()) << with_option;
  }
}

TEST(Reception, StoresWhatIsOutOfOrderAtItsPlace) {
  DataParts parts;
  Flow& flow = parts.established(start);
  static_cast<void>(parts.changes());
  Segment segment = DataParts::segment(flow);
  segment.payload = parts.text;
  segment.sequence = flow.receive_next + 1000u;
  parts.reception.receive(flow, segment, start);
  EXPECT_EQ(flow.received, 0u);
  EXPECT_EQ(parts.changes(), 0);
  segment.sequence = flow.receive_next;
  parts.reception.receive(flow, segment, start);
  EXPECT_EQ(flow.received, 2000u);
  EXPECT_EQ(parts.owner.stored, (std::vector<std::pair<std::uint64_t, std::size_t>>{{1000, 1000}, {0, 1000}}));
  EXPECT_EQ(parts.changes(), change::received);
  EXPECT_TRUE(flow.wants_ack);
}

TEST(Reception, ReportsDuplicatesThatTouchAsOne) {
  DataParts parts;
  Flow& flow = parts.established(start);
  flow.sack = true;
  Segment segment = DataParts::segment(flow);
  segment.payload = parts.text;
  flow.receive_next += 5000u;
  for (int i = 0; i < 2; ++i, segment.sequence += 1000u) parts.reception.receive(flow, segment, start);
  EXPECT_EQ(flow.slow->duplicate, (SequenceRange{Sequence(5000), Sequence(7000)}));
  segment.sequence += 1000u;  // one does not change it
  parts.reception.receive(flow, segment, start);
  EXPECT_EQ(flow.slow->duplicate, (SequenceRange{Sequence(5000), Sequence(7000)}));
}

TEST(Reception, TakesFinBehindAllData) {
  DataParts parts;
  Flow& flow = parts.established(start);
  static_cast<void>(parts.changes());
  Segment fin = DataParts::segment(flow, flag::ack | flag::fin);
  fin.sequence = flow.receive_next + 1000u;
  parts.reception.receive(flow, fin, start);
  EXPECT_EQ(flow.state, FlowState::established);
  Segment segment = DataParts::segment(flow);
  segment.payload = parts.text;
  parts.reception.receive(flow, segment, start);
  EXPECT_EQ(flow.state, FlowState::close_wait);
  EXPECT_EQ(parts.changes(), change::received | change::finished);
}

TEST(Reception, TakesNothingBeyondAShutWindow) {
  DataParts parts;
  Flow& flow = parts.established(start);
  flow.allowed = flow.received;
  Segment segment = DataParts::segment(flow);
  segment.payload = parts.text;
  parts.reception.receive(flow, segment, start);
  EXPECT_TRUE(parts.owner.stored.empty());
  EXPECT_TRUE(flow.wants_ack);
}

TEST(SegmentArrival, EndsAFlowOnlyForTheVeryNextNumber) {
  DataParts parts;
  Flow& flow = parts.established(start);
  Segment reset = DataParts::segment(flow, flag::rst);
  reset.sequence += 1u;
  EXPECT_TRUE(parts.arrival.receive(flow, reset, DataParts::peer_mac, start));
  EXPECT_EQ(flow.state, FlowState::established);
  EXPECT_EQ(parts.context.counters.challenges, 1u);
  reset.sequence = flow.receive_next;
  EXPECT_TRUE(parts.arrival.receive(flow, reset, DataParts::peer_mac, start));
  EXPECT_EQ(flow.state, FlowState::closed);
  EXPECT_EQ(flow.slow->error, FlowError::reset);
}

// The peer would treat it as arrived data.
TEST(SegmentArrival, DoesNotReportWhatIsBeyondTheWindow) {
  DataParts parts;
  Flow& flow = parts.established(start);
  flow.sack = true;
  Segment segment = DataParts::segment(flow);
  segment.payload = parts.text;
  segment.sequence = flow.receive_edge + 1u;
  EXPECT_TRUE(parts.arrival.receive(flow, segment, DataParts::peer_mac, start));
  EXPECT_TRUE(flow.wants_ack && flow.slow->duplicate.empty());
  segment.sequence = flow.receive_next - 2000u;
  EXPECT_TRUE(parts.arrival.receive(flow, segment, DataParts::peer_mac, start));
  EXPECT_EQ(flow.slow->duplicate.bytes(), 1000u);
}

TEST(SegmentArrival, MakesWayForAPeerThatBeginsAnew) {
  DataParts parts;
  Flow& flow = parts.established(start);
  parts.flows.enter(flow, FlowState::time_wait, start);
  Segment syn = DataParts::segment(flow, flag::syn);
  syn.sequence = flow.receive_next + 1u;
  EXPECT_TRUE(parts.arrival.receive(flow, syn, DataParts::peer_mac, start));  // nobody listens
  EXPECT_EQ(flow.state, FlowState::time_wait);
  ASSERT_TRUE(parts.listeners.add({test_family(), 80, 1, 1000, {}}));
  EXPECT_FALSE(parts.arrival.receive(flow, syn, DataParts::peer_mac, start));
  EXPECT_EQ(flow.state, FlowState::closed);
}

TEST(SegmentArrival, SendsSmallerSegmentsWhereARouterSaysSo) {
  DataParts parts;
  Flow& flow = parts.established(start, 5000);
  flow.next = flow.una + 5000u;
  flow.mss = 1400;
  const std::uint16_t narrow = tests_ipv6() ? 1300 : 640;
  IcmpUnreachable icmp{};
  icmp.key = flow.key;
  icmp.why = IcmpUnreachable::Why::too_big;
  icmp.mtu = narrow;
  icmp.sequence = flow.next;  // not in flight
  parts.arrival.receive_unreachable(flow, icmp, start);
  EXPECT_EQ(flow.mss, 1400);
  icmp.sequence = flow.una;
  parts.arrival.receive_unreachable(flow, icmp, start);
  EXPECT_EQ(flow.mss, StackContext::mss_of_mtu(test_family(), narrow));
  EXPECT_TRUE(flow.repairing);
  EXPECT_EQ(parts.context.counters.repairs, 0u);
}

TEST(FlowTimers, RetransmitTwiceAsLateEachTimeAndGiveUp) {
  StackOptions options;
  options.retries = 2;
  DataParts parts(options);
  Flow& flow = parts.established(start, 5000);
  flow.next = flow.una + 5000u;
  TimeNs now = start, before = 0;
  flow.retransmit_due = start;
  for (int i = 0; i < 2; ++i) {
    parts.timers.due(flow, now);
    ASSERT_TRUE(flow.timed_out);
    EXPECT_EQ(flow.congestion.window, flow.mss);
    EXPECT_GT(flow.retransmit_due - now, before);
    before = flow.retransmit_due - now;
    now = flow.retransmit_due;
  }
  parts.timers.due(flow, now);
  EXPECT_EQ(flow.state, FlowState::closed);
  EXPECT_EQ(flow.slow->error, FlowError::timed_out);
}

// Three retransmissions in a row on a fast path take milliseconds, too short to judge the path or the peer.
TEST(FlowTimers, ArePatientHoweverShortTimeoutsAre) {
  StackOptions options;
  options.rto.minimum_ns = millisecond_ns;
  DataParts parts(options);
  Flow& flow = parts.established(start, 5000);
  flow.rtt.add(20 * microsecond_ns, parts.context.options.rto);
  flow.next = flow.una + 5000u;
  flow.mss = 1400;
  TimeNs now = start;
  flow.retransmit_due = start;
  while (flow.mss == 1400) parts.timers.due(flow, now = flow.retransmit_due);
  EXPECT_GT(now - start, 500 * millisecond_ns);
  while (flow.state != FlowState::closed) parts.timers.due(flow, now = flow.retransmit_due);
  EXPECT_GT(now - start, 100 * second_ns) << "RFC 1122, 4.2.3.5";
}

// Reports of the first recovery's retransmissions, which a timestamp undid, come during the second recovery.
TEST(Recovery, IsNotUndoneByReportsOfAnother) {
  DataParts parts;
  Flow& flow = parts.established(start, 90'000);
  flow.next = flow.una + 10'000u;
  flow.slow->repair = std::make_unique<Repair>();
  Repair& repair = *flow.slow->repair;
  flow.repairing = true;
  const auto begin = [&](std::uint32_t sent_again) {
    repair.begin(flow.congestion, flow.una, flow.next, false, start);
    repair.sent_again({flow.una, flow.una + sent_again}, 0);
  };
  begin(5000);
  begin(1000);
  parts.recovery.take_duplicate(flow, {flow.una + 1000u, flow.una + 2000u}, start);
  EXPECT_EQ(parts.context.counters.undone, 0u);
  flow.una = flow.next;
  flow.next += 10'000u;
  begin(1000);
  parts.recovery.take_duplicate(flow, {flow.una, flow.una + 1000u}, start);
  EXPECT_EQ(parts.context.counters.undone, 1u);
}

// The tail probe brought the end of the data, so a segment was lost, after a recovery that may still be undone.
TEST(Recovery, IsNotUndoneAfterALossAtTheTail) {
  DataParts parts;
  Flow& flow = parts.established(start, 90'000);
  flow.slow->repair = std::make_unique<Repair>();
  Repair& repair = *flow.slow->repair;
  flow.next = flow.una + 5000u;
  repair.begin(flow.congestion, flow.una, flow.next, false, start);
  repair.sent_again({flow.una, flow.una + 1000u}, 0);
  flow.una = flow.next += 5000u;
  repair.expires = flow.next;
  flow.tail_out = true;
  flow.slow->tail_end = flow.una;
  flow.slow->tail_flight = 5000;
  const std::uint32_t before = flow.congestion.window;
  parts.recovery.judge_tail(flow, DataParts::segment(flow), start);
  const std::uint32_t after = flow.congestion.window;
  EXPECT_LT(after, before);
  parts.recovery.take_duplicate(flow, {repair.from, repair.from + 1000u}, start);
  EXPECT_EQ(flow.congestion.window, after);
}

TEST(FlowTimers, SendTheDelayedAcknowledgement) {
  DataParts parts;
  Flow& flow = parts.established(start);
  flow.ack_due = start;
  parts.timers.due(flow, start);
  EXPECT_TRUE(flow.wants_ack && flow.is_ready);
  EXPECT_EQ(flow.ack_due, never);
}

}  // namespace
}  // namespace offpath::tcp
