// Parts that begin connections or hand them over, each alone: listeners, passive and active open, hand-overs.
#include <gtest/gtest.h>

#include "tcp/stack/active_open.h"
#include "tcp/stack/hand_over.h"
#include "tcp/stack/passive_open.h"
#include "testing/tcp/stack_parts.h"

namespace offpath::tcp {
namespace {

constexpr TimeNs opened_at = second_ns;

struct OpeningParts : StackParts {
  explicit OpeningParts(const StackOptions& options = {}) : StackParts(options) {
    EXPECT_TRUE(listeners.add({test_family(), 80, 1, 10'000, {}}));
  }
  static Segment syn() {
    Segment made;
    made.key = key;
    made.sequence = Sequence(5000);
    made.flags = flag::syn;
    made.window = 2000;
    made.options.mss = 1200;
    return made;
  }
  // The SYN-ACK's answer.
  static Segment answer(const Segment& syn_ack) {
    Segment made = syn();
    made.sequence += 1u;
    made.flags = flag::ack;
    made.acknowledgement = syn_ack.sequence + 1u;
    return made;
  }

  Listeners listeners{};
  HandedFlows handed{context, other, routes};
  ActiveOpen active{context, other, flows, listeners, owner};
  PassiveOpen passive{context, other, frames, routes, flows, listeners, handed, owner, 0};
  HandOver hand_over{context, other, frames, routes, flows, listeners, handed, passive};
};

struct KeepingFastPath final : FastPath {
  void adopt(const wire::TcpHandedFlow& flow, const ReceivedFrame*) override { adopted.push_back(flow); }
  void failed(const FlowKey&, std::uint32_t, FlowError error) override { failures.push_back(error); }
  void returned(const ReceivedFrame&) override { ++frames_returned; }
  void neighbour(const IpAddress&, const MacAddress&) override {}

  std::vector<wire::TcpHandedFlow> adopted;
  std::vector<FlowError> failures;
  int frames_returned = 0;
};

TEST(Listeners, HaveOnePortEach) {
  Listeners listeners;
  constexpr IpFamily family = IpFamily::v4, other = IpFamily::v6;
  EXPECT_TRUE(listeners.add({family, 80, 1, 1000, {}}));
  EXPECT_FALSE(listeners.add({family, 80, 2, 1000, {}}));
  EXPECT_EQ(listeners.find(other, 80), nullptr);
  EXPECT_TRUE(listeners.add({other, 80, 3, 1000, {}}));
  ASSERT_NE(listeners.find(family, 80), nullptr);
  EXPECT_EQ(listeners.find(family, 80)->tag, 1u);
  EXPECT_TRUE(listeners.remove(family, 80));
  EXPECT_FALSE(listeners.remove(family, 80));
  EXPECT_EQ(listeners.find(family, 80), nullptr);
  EXPECT_EQ(listeners.find(other, 80)->tag, 3u);
}

TEST(PassiveOpen, EstablishesAFlowWhenItsSynAckIsAnswered) {
  OpeningParts parts;
  const auto sent = parts.sent(
      [&] { EXPECT_EQ(parts.passive.receive(OpeningParts::syn(), StackParts::peer_mac, opened_at), nullptr); });
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].flags, flag::syn | flag::ack);
  EXPECT_EQ(sent[0].acknowledgement, Sequence(5001));
  EXPECT_EQ(parts.passive.size(), 1u);
  EXPECT_EQ(parts.flows.size(), 0u);
  Flow* const flow = parts.passive.receive(OpeningParts::answer(sent[0]), StackParts::peer_mac, opened_at);
  ASSERT_NE(flow, nullptr);
  EXPECT_EQ(flow->state, FlowState::established);
  EXPECT_EQ(flow->mss, 1200);
  EXPECT_EQ(parts.passive.size(), 0u);
  EXPECT_EQ(parts.context.counters.accepted, 1u);
}

TEST(PassiveOpen, KeepsTheConnectionHalfOpenIfTheOwnerHasNoRoom) {
  OpeningParts parts;
  parts.owner.accepts = false;
  const auto sent = parts.sent(
      [&] { EXPECT_EQ(parts.passive.receive(OpeningParts::syn(), StackParts::peer_mac, opened_at), nullptr); });
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(parts.passive.receive(OpeningParts::answer(sent[0]), StackParts::peer_mac, opened_at), nullptr);
  EXPECT_EQ(parts.passive.size(), 1u);
  EXPECT_EQ(parts.flows.size(), 0u);
  parts.owner.accepts = true;
  EXPECT_NE(parts.passive.receive(OpeningParts::answer(sent[0]), StackParts::peer_mac, opened_at), nullptr);
}

TEST(PassiveOpen, SendsACookieWhereNoPlaceIsLeft) {
  StackOptions options;
  options.half_open_max = 0;
  OpeningParts parts(options);
  const auto sent = parts.sent(
      [&] { EXPECT_EQ(parts.passive.receive(OpeningParts::syn(), StackParts::peer_mac, opened_at), nullptr); });
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(parts.context.counters.cookies_out, 1u);
  EXPECT_EQ(parts.passive.size(), 0u);
  Segment forged = OpeningParts::answer(sent[0]);
  forged.acknowledgement += 1u;
  EXPECT_EQ(parts.passive.receive(forged, StackParts::peer_mac, opened_at), nullptr);
  EXPECT_NE(parts.passive.receive(OpeningParts::answer(sent[0]), StackParts::peer_mac, opened_at), nullptr);
  EXPECT_EQ(parts.context.counters.cookies_in, 1u);
}

TEST(PassiveOpen, RepeatsTheSynAckAndForgets) {
  StackOptions options;
  options.syn_ack_retries = 1;
  OpeningParts parts(options);
  parts.know_peer(opened_at);
  EXPECT_EQ(parts.passive.receive(OpeningParts::syn(), StackParts::peer_mac, opened_at), nullptr);
  EXPECT_EQ(parts.sent([] {}).size(), 1u);
  TimeNs now = opened_at;
  for (const std::size_t expected : {1u, 0u}) {
    now += 4 * second_ns;
    EXPECT_EQ(parts.sent([&] { parts.passive.on_time(now); }).size(), expected);
  }
  EXPECT_EQ(parts.passive.size(), 0u);
}

TEST(ActiveOpen, ChoosesAFreePortOrSaysWhyNot) {
  OpeningParts parts;
  const auto first = parts.active.connect(0, {StackParts::peer, 90}, 1, 1000, opened_at, {});
  const auto second = parts.active.connect(0, {StackParts::peer, 90}, 2, 1000, opened_at, {});
  ASSERT_TRUE(first && second);
  EXPECT_NE(parts.flows.find(*first)->key.local.port, parts.flows.find(*second)->key.local.port);
  EXPECT_EQ(parts.flows.find(*first)->state, FlowState::syn_sent);
  EXPECT_TRUE(parts.flows.find(*first)->wants_syn);
  const std::uint16_t taken = parts.flows.find(*first)->key.local.port;
  EXPECT_FALSE(parts.active.connect(taken, {StackParts::peer, 90}, 3, 1000, opened_at, {}));
  EXPECT_FALSE(parts.active.connect(0, {test_address(0x0b000001), 90}, 3, 1000, opened_at, {}));  // no route
  EXPECT_EQ(parts.flows.size(), 2u);
}

TEST(HandedFlows, ReadBackWhatTheyWrite) {
  OpeningParts parts;
  parts.know_peer(opened_at);
  Flow& flow = parts.established(opened_at);
  flow.sack = true;
  flow.rtt.add(10 * millisecond_ns, {});
  const wire::TcpHandedFlow written = parts.handed.write(flow);
  EXPECT_TRUE(parts.handed.check(written));
  FlowKey other = StackParts::key;
  ++other.remote.port;
  Flow& copy = *parts.flows.new_flow(other, 8, 65'535, {}, opened_at);
  parts.handed.read(copy, written, opened_at);
  EXPECT_EQ(copy.next, flow.next);
  EXPECT_EQ(copy.receive_next, flow.receive_next);
  EXPECT_EQ(copy.send_window, flow.send_window);
  EXPECT_EQ(copy.mss, flow.mss);
  EXPECT_TRUE(copy.sack);
  EXPECT_EQ(copy.rtt.smoothed_ns(), 10 * millisecond_ns);
  wire::TcpHandedFlow wrong = written;
  wrong.send_scale = 15;
  EXPECT_FALSE(parts.handed.check(wrong));
  wrong = written;
  wrong.mss = 9000;
  EXPECT_FALSE(parts.handed.check(wrong));
}

TEST(HandOver, KeepsAConnectionHalfOpenUntilTheOtherStackHasAnswered) {
  OpeningParts parts;
  KeepingFastPath fast;
  parts.other.fast = &fast;
  const ReceivedFrame frame{};
  parts.other.frame = &frame;
  const auto sent = parts.sent(
      [&] { EXPECT_EQ(parts.passive.receive(OpeningParts::syn(), StackParts::peer_mac, opened_at), nullptr); });
  ASSERT_EQ(sent.size(), 1u);
  const Segment answer = OpeningParts::answer(sent[0]);
  EXPECT_EQ(parts.passive.receive(answer, StackParts::peer_mac, opened_at + 30 * microsecond_ns), nullptr);
  ASSERT_EQ(fast.adopted.size(), 1u);
  EXPECT_EQ(fast.adopted[0].round_trip_us, 30u);
  EXPECT_EQ(parts.passive.receive(answer, StackParts::peer_mac, opened_at), nullptr);  // meanwhile
  EXPECT_EQ(fast.frames_returned, 1);
  parts.hand_over.adopted(StackParts::key, 0, true, opened_at);  // declined
  EXPECT_EQ(parts.passive.receive(answer, StackParts::peer_mac, opened_at + second_ns), nullptr);
  ASSERT_EQ(fast.adopted.size(), 2u);
  EXPECT_EQ(fast.adopted[1].round_trip_us, 0u) << "the wait for a place is no round trip";
  parts.hand_over.adopted(StackParts::key, 0, false, opened_at);
  EXPECT_EQ(parts.passive.size(), 0u);
}

TEST(HandOver, AdoptsOnlyWhatAListenerWants) {
  OpeningParts parts;
  Flow& flow = parts.established(opened_at);
  wire::TcpHandedFlow handed = parts.handed.write(flow);
  parts.flows.end(flow, FlowError::none);
  handed.key.local_port = 81;
  const auto declined = parts.hand_over.adopt(handed, opened_at);
  ASSERT_TRUE(declined);
  EXPECT_FALSE(*declined);
  handed.key.local_port = 80;
  const auto adopted = parts.hand_over.adopt(handed, opened_at);
  ASSERT_TRUE(adopted);
  EXPECT_TRUE(*adopted);
  EXPECT_EQ(parts.flows.size(), 1u);
  handed.key.remote_port = 0;
  EXPECT_FALSE(parts.hand_over.adopt(handed, opened_at));
}

}  // namespace
}  // namespace offpath::tcp
