// The slow path in another process, at one end, at the other, or at both, over bad networks by seed: connections begun
// there continue here, and segments in between are lost or repeated like others. Processes die, hang and come back
// while connections begin and end. What must hold:
//   - every byte that was sent is received once, at its place, and no other
//   - without a death, what was not aborted ends without an error; a death may cost connections that were being begun,
//     no other; all else that it may cost is the answer to a last FIN
//   - nothing is left of any: no flow and no half-open connection, in any of the four stacks
//
// Seeds: seeds.h.
#include <gtest/gtest.h>

#include <set>

#include "bad_network.h"
#include "seeds.h"
#include "testing/tcp/slow_path.h"

namespace offpath::sim {
namespace {

using namespace tcp;

constexpr std::uint16_t port = 80;

// The events of all worlds together.
struct Tried {
  std::uint64_t adopted = 0, declined = 0, handed_back = 0, cookies = 0, deaths = 0, hung = 0, whole = 0, lost = 0;
};

void add(Tried& tried, const SlowPathNetwork& network) {
  for (const auto& slow : network.slow) {
    if (!slow) continue;
    tried.adopted += slow->counters.adopted;
    tried.declined += slow->counters.declined;
    tried.handed_back += slow->counters.handed_back;
    tried.hung += slow->why ? 1 : 0;
    if (slow->process && slow->process->stack() != nullptr)
      tried.cookies += slow->process->stack()->counters().cookies_in;
  }
}

// A random process ends or hangs; or an absent one starts.
void disturb(SlowPathNetwork& network, NetworkRandom& random, Tried& tried) {
  auto& slow = network.slow[random.below(2)];
  if (!slow) return;
  if (!slow->agent) {
    slow->stopped = false;
    return slow->begin(network.now);
  }
  if (random.chance(0.3)) {
    slow->stopped = true;
  } else {
    ++tried.deaths;
    slow->end();
  }
}

// From this port if the stack lets it, otherwise from any.
TestFlow& connect(SlowPathNetwork& network, const TestFlowPlan& plan, std::uint16_t local) {
  auto& end = network.ends[0];
  TestFlow& flow = end.owner.add(plan, 0, 0);
  auto id = end.stack->connect(local, {TestNetwork::address(1), port}, flow.tag, plan.buffer_bytes, network.now);
  if (!id) id = end.stack->connect(0, {TestNetwork::address(1), port}, flow.tag, plan.buffer_bytes, network.now);
  flow.id = id.value();
  const std::uint64_t name = end.stack->flow(flow.id)->key.local.port;
  flow.send_stream = 2 * name;
  flow.receive_stream = 2 * name + 1;
  return flow;
}

bool peer_has_read_all(const SlowPathNetwork& network, const TestFlow& flow) {
  return flow.finished && std::ranges::any_of(network.ends[1].owner.flows, [&](const auto& each) {
           return each.second.receive_stream == flow.send_stream && each.second.read == flow.sends;
         });
}

void run_world(std::uint64_t seed, bool disturbed, Tried& tried) {
  NetworkRandom random(seed);
  TestNetworkOptions options;
  options.seed = seed;
  options.there = random.impairments();
  options.back = random.impairments();
  options.ports.checksum = random.chance(0.7);
  if (random.chance(0.5)) options.ports.segmentation_bytes = 65'536;
  if (random.chance(0.3)) options.congestion = "dctcp";
  if (random.chance(0.3)) options.stack.half_open_max = 2;  // cookies
  const std::uint64_t where = 1 + random.below(3);
  SlowPathNetwork network(options, (where & 1) != 0, (where & 2) != 0);
  const std::size_t flows = random.size_up_to(6);
  auto& server = network.ends[1].owner;
  server.plan = {random.size_up_to(16), 1000 + random.size_up_to(16)};
  if (random.chance(0.3)) server.flows_max = flows / 2;  // no accept slot, for a while
  // Aborted flows whose reset was lost are detected.
  ASSERT_TRUE(network.ends[1].stack->listen(test_family(), port, 1, server.plan.buffer_bytes,
                                            {.keepalive_idle_ns = 60 * second_ns}));
  std::vector<TestFlow*> made;
  std::set<const TestFlow*> aborted;
  for (std::size_t i = 0; i < flows; ++i) {
    // Also ports of former connections: TIME-WAIT.
    const auto local = static_cast<std::uint16_t>(random.chance(0.2) ? 2000 + i % 8 : 0);
    made.push_back(&connect(network, {random.size_up_to(16), 1000 + random.size_up_to(16)}, local));
    network.run(static_cast<TimeNs>(random.below(5 * millisecond_ns)));
    if (random.chance(0.1)) {
      network.ends[0].stack->abort(made.back()->id, network.now);
      aborted.insert(made.back());
    }
    if (disturbed && random.chance(0.1)) disturb(network, random, tried);
  }
  network.run(static_cast<TimeNs>(random.below(2 * second_ns)));
  server.flows_max = 1 << 20;
  ASSERT_TRUE(network.run_until([&] { return network.all_gone(); }, 3000 * second_ns)) << flows << " flows";
  for (const auto& end : network.ends)
    for (const auto& [tag, flow] : end.owner.flows) ASSERT_EQ(flow.wrong, 0u);
  for (const TestFlow* flow : made) {
    if (aborted.contains(flow)) continue;
    // A connection lost by a death had transferred nothing, or everything was read: its end was refused because
    // TIME-WAIT was lost.
    if (disturbed && flow->error != FlowError::none) {
      ++tried.lost;
      EXPECT_TRUE(flow->acknowledged == 0 || peer_has_read_all(network, *flow));
      continue;
    }
    ++tried.whole;
    EXPECT_EQ(flow->error, FlowError::none);
    EXPECT_EQ(flow->read, server.plan.sends);
  }
  if (disturbed) {
    for (auto& slow : network.slow)
      if (slow && slow->stopped) slow->end();
    TestFlow& last = connect(network, {1000, 4096}, 0);
    ASSERT_TRUE(network.run_until([&] { return network.all_gone(); }, 3000 * second_ns));
    EXPECT_EQ(last.error, FlowError::none);
    EXPECT_EQ(last.read, server.plan.sends);
  }
  network.run(400 * second_ns);
  for (std::size_t i = 0; i < 2; ++i) {
    std::vector<const Stack*> stacks = {network.ends[i].stack.get()};
    if (network.slow[i] && network.slow[i]->process && network.slow[i]->agent)
      stacks.push_back(network.slow[i]->process->stack());
    for (const Stack* stack : stacks) {
      if (stack == nullptr) continue;
      EXPECT_EQ(stack->flows(), 0u);
      EXPECT_EQ(stack->half_open(), 0u);
      EXPECT_FALSE(stack->wants_to_send());
    }
  }
  add(tried, network);
}

TEST(TcpSlowPathSim, EveryByteArrivesWhicheverStackBeginsIt) {
  Tried tried;
  if (!each_seed(60, [&](std::uint64_t seed) { run_world(seed, false, tried); })) return;
  EXPECT_GT(tried.adopted, 0u);
  EXPECT_GT(tried.declined, 0u);
  EXPECT_GT(tried.handed_back, 0u);
  EXPECT_GT(tried.cookies, 0u);
  EXPECT_EQ(tried.hung, 0u);
}

TEST(TcpSlowPathSim, ProcessesComeAndGo) {
  Tried tried;
  if (!each_seed(60, [&](std::uint64_t seed) { run_world(seed, true, tried); })) return;
  EXPECT_GT(tried.deaths, 0u);
  EXPECT_GT(tried.hung, 0u);
  EXPECT_GT(tried.whole, 4 * tried.lost);
  EXPECT_GT(tried.adopted, 0u);
}

// Established connections lose nothing when the process dies.
TEST(TcpSlowPathSim, EstablishedConnectionsSurviveEveryDeath) {
  each_seed(20, [&](std::uint64_t seed) {
    NetworkRandom random(seed);
    TestNetworkOptions options;
    options.seed = seed;
    options.there.loss = options.back.loss = static_cast<double>(random.below(20)) / 1000;
    options.there.delay_ns = options.back.delay_ns = millisecond_ns;
    SlowPathNetwork network(options);
    network.ends[1].owner.plan = {200'000, 16'384};
    ASSERT_TRUE(network.ends[1].stack->listen(test_family(), port, 1, 16'384));
    std::vector<TestFlow*> made;
    for (int i = 0; i < 8; ++i) made.push_back(&network.connect(0, port, {200'000, 16'384}));
    ASSERT_TRUE(network.run_until(
        [&] {
          const auto& served = network.ends[1].owner.flows;
          return served.size() == 8 &&
                 std::ranges::all_of(served, [](const auto& each) { return each.second.connected; });
        },
        60 * second_ns));
    for (int i = 0; i < 10; ++i) {
      auto& slow = network.slow[random.below(2)];
      if (slow->agent)
        slow->end();
      else
        slow->begin(network.now);
      network.run(static_cast<TimeNs>(random.below(50 * millisecond_ns)));
    }
    ASSERT_TRUE(network.run_until([&] { return network.all_gone(); }, 600 * second_ns));
    for (const TestFlow* flow : made) {
      EXPECT_TRUE(flow->error == FlowError::none || peer_has_read_all(network, *flow));
      EXPECT_EQ(flow->read, 200'000u);
      EXPECT_EQ(flow->wrong, 0u);
    }
  });
}

}  // namespace
}  // namespace offpath::sim
