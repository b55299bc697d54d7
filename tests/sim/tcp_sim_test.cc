// Two TCP stacks in virtual time over a bad network: each seed draws losses, reordering, duplicates, damage, delay, a
// bottleneck, ports with and without segmentation, congestion control, and connections of 1 B to many MiB, some of
// which are aborted. What must hold:
//   - every byte that was sent is received once, at its place, and no other
//   - what was not aborted ends without an error, within a bounded time
//   - nothing is left of it: no flow, no timer, nothing that still wants to be sent
//
// Seeds: seeds.h.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "bad_network.h"
#include "seeds.h"
#include "tcp/segment/frame_writer.h"
#include "testing/sanitized.h"
#include "testing/tcp/network.h"

namespace offpath::sim {
namespace {

using namespace tcp;

constexpr std::uint16_t port = 80;

using World = NetworkRandom;

void expect_nothing_is_left(TestNetwork& network) {
  network.run(300 * second_ns);
  for (auto& end : network.ends) {
    EXPECT_EQ(end.stack->flows(), 0u);
    EXPECT_EQ(end.stack->half_open(), 0u);
    EXPECT_FALSE(end.stack->wants_to_send());
    EXPECT_EQ(end.stack->next_due(), never);
  }
}

// The events of all worlds together, which show that each kind was tried.
struct Tried {
  std::uint64_t retransmitted = 0, timeouts = 0, repairs = 0, out_of_order = 0, cookies = 0;
};

void run_world(std::uint64_t seed, Tried& tried) {
  World world(seed);
  TestNetworkOptions options;
  options.seed = seed;
  options.there = world.impairments();
  options.back = world.impairments();
  options.ports.mtu = world.chance(0.2) ? 9000 : 1500;
  options.ports.checksum = world.chance(0.7);
  if (world.chance(0.5)) options.ports.segmentation_bytes = 65'536;
  constexpr std::string_view algorithms[] = {"new_reno", "cubic", "dctcp", "timely"};
  options.congestion = algorithms[world.below(4)];
  if (world.chance(0.2)) options.stack.half_open_max = 2;  // cookies
  TestNetwork network(options);
  const std::size_t flows = world.size_up_to(6);
  const unsigned bits = flows < 4 ? 22 : 16;
  network.ends[1].owner.plan = {world.size_up_to(bits), 1000 + world.size_up_to(18)};
  ASSERT_TRUE(network.ends[1].stack->listen(test_family(), port, 1, network.ends[1].owner.plan.buffer_bytes));
  std::vector<TestFlow*> made;
  std::set<const TestFlow*> aborted;
  for (std::size_t i = 0; i < flows; ++i) {
    made.push_back(&network.connect(0, port, {world.size_up_to(bits), 1000 + world.size_up_to(18)}));
    network.run(static_cast<TimeNs>(world.below(5 * millisecond_ns)));
    if (world.chance(0.05)) {
      network.ends[0].stack->abort(made.back()->id, network.now);
      aborted.insert(made.back());
    }
  }
  ASSERT_TRUE(network.run_until([&] { return network.all_gone(); }, 2000 * second_ns))
      << flows << " flows, " << options.congestion;
  std::size_t whole = 0;
  for (const auto& [tag, served] : network.ends[1].owner.flows) {
    ASSERT_EQ(served.wrong, 0u);
    whole += served.error == FlowError::none;
  }
  EXPECT_GE(whole, flows - aborted.size());
  for (const TestFlow* flow : made) {
    ASSERT_EQ(flow->wrong, 0u);
    if (aborted.contains(flow)) continue;
    EXPECT_EQ(flow->error, FlowError::none);
    EXPECT_EQ(flow->read, network.ends[1].owner.plan.sends);
  }
  expect_nothing_is_left(network);
  for (const auto& end : network.ends) {
    const StackCounters& counters = end.stack->counters();
    tried.retransmitted += counters.retransmitted;
    tried.timeouts += counters.timeouts;
    tried.repairs += counters.repairs;
    tried.out_of_order += counters.out_of_order;
    tried.cookies += counters.cookies_in;
  }
}

TEST(TcpSim, EveryByteArrivesOverABadNetwork) {
  Tried tried;
  if (!each_seed(60, [&](std::uint64_t seed) { run_world(seed, tried); })) return;
  EXPECT_GT(tried.retransmitted, 0u);
  EXPECT_GT(tried.timeouts, 0u);
  EXPECT_GT(tried.repairs, 0u);
  EXPECT_GT(tried.out_of_order, 0u);
  EXPECT_GT(tried.cookies, 0u);
}

TEST(TcpSim, ThousandsOfConnectionsAtOnce) {
  TestNetworkOptions options;
  options.there.loss = options.back.loss = 0.01;
  options.there.delay_ns = options.back.delay_ns = millisecond_ns;
  options.ports.frames_max = 1 << 16;
  options.stack.half_open_max = 512;
  TestNetwork network(options);
  network.ends[1].owner.plan = {300, 2000};
  ASSERT_TRUE(network.ends[1].stack->listen(test_family(), port, 1, 2000));
  const std::uint64_t count = fewer_if_sanitized(4096);
  for (std::uint64_t i = 0; i < count; ++i) network.connect(0, port, {700, 2000});
  ASSERT_TRUE(network.run_until([&] { return network.all_gone(); }, 600 * second_ns));
  EXPECT_EQ(network.ends[1].owner.flows.size(), count);
  for (auto& end : network.ends)
    for (const auto& [tag, flow] : end.owner.flows) {
      ASSERT_EQ(flow.error, FlowError::none);
      ASSERT_EQ(flow.wrong, 0u);
      ASSERT_EQ(flow.read, &end == &network.ends[0] ? 300u : 700u);
    }
  expect_nothing_is_left(network);
}

// Sends messages in another node's name.
class Liar {
 public:
  explicit Liar(TestNetwork& network) : network_(network) {}
  // A segment to the second end, from wherever `key` says.
  void say(const FlowKey& key, Sequence sequence, Sequence acknowledgement, std::uint8_t flags, Bytes payload = {}) {
    Segment segment;
    segment.key = {key.remote, key.local};
    segment.sequence = sequence;
    segment.acknowledgement = acknowledgement;
    segment.flags = flags;
    segment.window = 65'535;
    if (flags & flag::syn) segment.options.mss = 1460;
    FrameToSend frame;
    write_segment_frame(segment, {payload, Bytes()}, 1460, {2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}, false, frame);
    std::vector<std::byte> bytes(frame.header.begin(), frame.header.begin() + frame.header_bytes);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    network_.ends[1].stack->receive({bytes, false}, network_.now);
  }

 private:
  TestNetwork& network_;
};

TestNetworkOptions a_millisecond_away() {
  TestNetworkOptions options;
  options.there.delay_ns = options.back.delay_ns = millisecond_ns;
  return options;
}

struct Attacked {
  TestNetwork network;
  TestFlow* flow;

  explicit Attacked(const TestNetworkOptions& options) : network(options) {
    network.ends[1].owner.plan = {3'000'000, 100'000};
    EXPECT_TRUE(network.ends[1].stack->listen(test_family(), port, 1, 100'000));
    flow = &network.connect(0, port, {3'000'000, 100'000});
  }
  void expect_unharmed() {
    ASSERT_TRUE(network.run_until([&] { return flow->gone && network.ends[1].owner.flows.begin()->second.gone; },
                                  60 * second_ns));
    EXPECT_EQ(flow->error, FlowError::none);
    EXPECT_EQ(flow->read, 3'000'000u);
    EXPECT_EQ(flow->wrong, 0u);
  }
};

// A queue that marks early is never full for senders that go by the share of marks, and its link hardly ever empty; of
// the same queue without marks a sender that goes by losses has lost a part.
TEST(TcpSim, ABottleneckThatMarksDropsNothing) {
  constexpr std::uint64_t bytes = 20'000'000, link = 12'500'000;  // a second
  for (const bool marks : {true, false}) {
    TestNetworkOptions options;
    options.congestion = marks ? "dctcp" : "cubic";
    options.ports.segmentation_bytes = 65'536;
    options.there = options.back = {.delay_ns = 500 * microsecond_ns,
                                    .bytes_per_second = link,
                                    .queue_bytes = 200'000,
                                    .mark_bytes = marks ? 30'000u : 0u};
    TestNetwork network(options);
    ASSERT_TRUE(network.ends[1].stack->listen(test_family(), port, 1, 1 << 20));
    network.ends[1].owner.plan = {.sends = 0, .buffer_bytes = 1 << 20};
    const TimeNs began = network.now;
    network.connect(0, port, {.sends = bytes, .buffer_bytes = 1 << 20});
    ASSERT_TRUE(
        network.run_until([&] { return network.all_gone() && !network.ends[1].owner.flows.empty(); }, 60 * second_ns));
    const StackCounters &sender = network.ends[0].stack->counters(), &receiver = network.ends[1].stack->counters();
    EXPECT_EQ(receiver.payload_in, bytes);
    EXPECT_EQ(sender.retransmitted == 0, marks);
    EXPECT_EQ(receiver.marked_in > 0 && sender.echoes_in > 0, marks);
    const double seconds = double(network.now - began) / second_ns;
    EXPECT_GT(bytes / seconds, 0.8 * link) << options.congestion;
  }
}

// A path that delays or changes segments without losing them must not reduce the rate.
TEST(TcpSim, APathThatReordersDoublesOrDelaysIsFilledAllTheSame) {
  constexpr std::uint64_t bytes = 40'000'000, link = 12'500'000;  // a second
  const Impairments far{.delay_ns = 5 * millisecond_ns, .bytes_per_second = link, .queue_bytes = 250'000};
  const auto with = [&far](auto change) {
    Impairments bad = far;
    change(bad);
    return bad;
  };
  const std::pair<const char*, Impairments> paths[] = {
      {"reordering", with([](Impairments& bad) { bad.reorder = 0.02, bad.reorder_ns = 4 * millisecond_ns; })},
      {"duplicates", with([](Impairments& bad) { bad.duplicate = 0.01; })},
      {"jitter", with([](Impairments& bad) { bad.jitter_ns = 4 * millisecond_ns; })},
  };
  for (const auto& [name, bad] : paths) {
    TestNetworkOptions options;
    options.there = bad;
    options.back = {.delay_ns = far.delay_ns};
    TestNetwork network(options);
    network.ends[1].owner.plan = {.sends = 0, .buffer_bytes = 1 << 20};
    ASSERT_TRUE(network.ends[1].stack->listen(test_family(), port, 1, 1 << 20));
    const TimeNs began = network.now;
    network.connect(0, port, {.sends = bytes, .buffer_bytes = 1 << 20});
    ASSERT_TRUE(
        network.run_until([&] { return network.all_gone() && !network.ends[1].owner.flows.empty(); }, 60 * second_ns));
    const double seconds = double(network.now - began) / second_ns;
    const StackCounters& sender = network.ends[0].stack->counters();
    EXPECT_GT(bytes / seconds, 0.8 * link) << name;
    EXPECT_LT(sender.retransmitted, bytes / 20) << name;
    EXPECT_EQ(sender.timeouts, 0u) << name;
  }
}

// Losses one by one at random: the window is what Reno-friendly growth and one reduction for each loss make of it
// (12 segments by RFC 9438, less what repairs take), also where a loss is known before the window is full again.
TEST(TcpSim, RandomLossesCostOneReductionEach) {
  constexpr std::uint64_t bytes = 4 << 20, seeds = 20;
  double seconds = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    TestNetworkOptions options;
    options.seed = seed;
    options.congestion = "cubic";
    options.there = options.back = {.delay_ns = millisecond_ns};
    options.there.loss = options.back.loss = 0.01;
    options.ports.segmentation_bytes = 65'536;
    TestNetwork network(options);
    network.ends[1].owner.plan = {.sends = 0, .buffer_bytes = bytes};
    ASSERT_TRUE(network.ends[1].stack->listen(test_family(), port, 1, bytes));
    const TimeNs began = network.now;
    network.connect(0, port, {.sends = bytes, .buffer_bytes = 1 << 20});
    ASSERT_TRUE(
        network.run_until([&] { return network.all_gone() && !network.ends[1].owner.flows.empty(); }, 60 * second_ns));
    seconds += double(network.now - began) / second_ns;
  }
  const double segments = double(bytes) * seeds / seconds * 0.002 / 1448;
  EXPECT_GT(segments, 9.5);
  EXPECT_LT(segments, 13);
}

// It leaves more holes than a scoreboard of 128 could take in.
TEST(TcpSim, AQueueThatOverflowsInSlowStartIsRepairedWithoutATimeout) {
  TestNetworkOptions options;
  options.there = {.delay_ns = 10 * millisecond_ns, .bytes_per_second = 12'500'000, .queue_bytes = 250'000};
  options.back = {.delay_ns = 10 * millisecond_ns};
  options.ports.segmentation_bytes = 65'536;
  TestNetwork network(options);
  network.ends[1].owner.plan = {.sends = 0, .buffer_bytes = 4 << 20};
  ASSERT_TRUE(network.ends[1].stack->listen(test_family(), port, 1, 4 << 20));
  network.connect(0, port, {.sends = 4 << 20, .buffer_bytes = 1 << 20});
  ASSERT_TRUE(
      network.run_until([&] { return network.all_gone() && !network.ends[1].owner.flows.empty(); }, 60 * second_ns));
  EXPECT_EQ(network.ends[0].stack->counters().timeouts, 0u);
  EXPECT_GT(network.ends[0].stack->counters().repairs, 0u);
}

TEST(TcpSim, AFloodOfSynsCostsABoundedAmountAndNothingOfWhatIsEstablished) {
  TestNetworkOptions options;
  options.there.delay_ns = millisecond_ns;
  options.stack.half_open_max = 100;
  Attacked world(options);
  Liar liar(world.network);
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const Endpoint from{test_address(0x0a000003 + static_cast<std::uint32_t>(random() % 200)),
                        static_cast<std::uint16_t>(1 + random() % 65'535)};
    liar.say({{TestNetwork::address(1), port}, from}, Sequence(static_cast<std::uint32_t>(random())), Sequence(0),
             flag::syn);
    if (i % 200 == 0) world.network.run(millisecond_ns);
    ASSERT_LE(world.network.ends[1].stack->half_open(), 100u);
  }
  // Others still get through, by cookies.
  const std::uint64_t before = world.network.ends[1].stack->counters().cookies_in;
  TestFlow& other = world.network.connect(0, port, {1000, 10'000});
  world.expect_unharmed();
  ASSERT_TRUE(world.network.run_until([&] { return other.gone; }, 60 * second_ns));
  EXPECT_EQ(other.error, FlowError::none);
  EXPECT_EQ(other.read, 3'000'000u);
  EXPECT_GT(world.network.ends[1].stack->counters().cookies_in, before);
  EXPECT_LE(world.network.ends[1].stack->flows(), 2u);
}

TEST(TcpSim, CookiesThatNobodyWasGivenOpenNothing) {
  TestNetworkOptions options;
  options.stack.half_open_max = 0;
  Attacked world(options);
  Liar liar(world.network);
  world.network.run(10 * millisecond_ns);
  std::mt19937 random(2);
  for (int i = 0; i < 100'000; ++i)
    liar.say({{TestNetwork::address(1), port}, {test_address(0x0a000005), 1234}}, Sequence(77),
             Sequence(static_cast<std::uint32_t>(random())), flag::ack);
  EXPECT_LE(world.network.ends[1].owner.flows.size(), 1u);
  world.expect_unharmed();
}

// Somebody who knows the four numbers, and neither sequence number.
TEST(TcpSim, GuessesEndNothingAndChangeNothing) {
  Attacked world(a_millisecond_away());
  Liar liar(world.network);
  world.network.run(20 * millisecond_ns);
  const FlowKey key = world.network.ends[1].stack->flow(world.network.ends[1].owner.flows.begin()->second.id)->key;
  std::mt19937 random(3);
  const std::vector<std::byte> lie(100, std::byte{0x66});
  const auto challenges_before = world.network.ends[1].stack->counters().challenges;
  for (int i = 0; i < 30'000; ++i) {
    constexpr std::uint8_t kinds[] = {flag::rst, flag::rst | flag::ack, flag::syn, flag::syn | flag::ack,
                                      flag::ack, flag::fin | flag::ack};
    const std::uint8_t flags = kinds[random() % std::size(kinds)];
    liar.say(key, Sequence(static_cast<std::uint32_t>(random())), Sequence(static_cast<std::uint32_t>(random())), flags,
             flags == flag::ack && random() % 2 ? Bytes(lie) : Bytes());
    if (i % 1000 == 0) world.network.run(millisecond_ns);
  }
  world.expect_unharmed();
  // However many, they are asked about seldom.
  EXPECT_LE(world.network.ends[1].stack->counters().challenges - challenges_before, 200u);
}

// An observer of the flow can forge a segment within its window: a RST there gets a challenge (RFC 5961).
TEST(TcpSim, AResetWithinTheWindowIsNotBelieved) {
  Attacked world(a_millisecond_away());
  Liar liar(world.network);
  world.network.run(20 * millisecond_ns);
  const FlowId id = world.network.ends[1].owner.flows.begin()->second.id;
  const Flow* flow = world.network.ends[1].stack->flow(id);
  ASSERT_NE(flow, nullptr);
  ASSERT_EQ(flow->state, FlowState::established);
  liar.say(flow->key, flow->receive_next + 1, Sequence(0), flag::rst);
  EXPECT_EQ(flow->state, FlowState::established);
  EXPECT_GE(world.network.ends[1].stack->counters().challenges, 1u);
  liar.say(flow->key, flow->receive_next, Sequence(0), flag::syn);
  EXPECT_EQ(flow->state, FlowState::established);
  world.expect_unharmed();
}

TEST(TcpSim, AnyFrameIsTakenOrDroppedUnderAReason) {
  Attacked world(a_millisecond_away());
  world.network.run(20 * millisecond_ns);
  std::mt19937 random(4);
  auto& stack = *world.network.ends[1].stack;
  for (int i = 0; i < 100'000; ++i) {
    std::vector<std::byte> bytes(random() % 120);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    constexpr std::uint8_t begins[] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8};
    for (std::size_t at = 0; at < std::min(bytes.size(), std::size(begins)); ++at) bytes[at] = std::byte{begins[at]};
    stack.receive({bytes, true}, world.network.now);
  }
  std::uint64_t dropped = 0;
  for (const std::uint64_t count : stack.counters().drops) dropped += count;
  EXPECT_GT(dropped, 90'000u);
  world.expect_unharmed();
}

}  // namespace
}  // namespace offpath::sim
