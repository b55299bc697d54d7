// Requests on simulated cores: rates and latencies that follow from the costs; no core does two things at once.
#include "testing/tcp/simulated_requests.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/clock.h"

namespace offpath::tcp {
namespace {

constexpr TimeNs duration = 20 * millisecond_ns;

RequestCosts kernel_costs() {
  RequestCosts costs;
  costs.client = {.wait_ns = 400, .event_ns = 50, .receive_ns = 500, .send_ns = 2'500};
  costs.server = {.wait_ns = 300, .event_ns = 40, .receive_ns = 600, .send_ns = 2'000};
  costs.wakes = {.wake_ns = 1'000, .datagram_ns = 900, .sleep_ns = 300};
  costs.client_ns = 70;
  costs.server_ns = 30;
  return costs;
}
RequestCosts agent_costs() {
  RequestCosts costs = kernel_costs();
  costs.server = {.wait_ns = 100, .event_ns = 30, .receive_ns = 60, .send_ns = 80};
  costs.agent = {
      .round_ns = 300, .in_round_ns = 200, .in_ns = 400, .out_round_ns = 600, .out_ns = 1'500, .yield_ns = 200};
  return costs;
}
constexpr SchedulerCosts scheduler{.wake_latency_ns = 5'000, .switch_ns = 1'000};

RequestFigures figures(const RequestSetUp& set_up, const RequestCosts& costs) {
  return SimulatedRequests(set_up, costs, scheduler).run(duration);
}

// Both ends sleep: every step of an echo comes after the one before it.
TEST(SimulatedRequests, AnEchoTakesTheSumOfItsSteps) {
  const RequestCosts costs = kernel_costs();
  const RequestFigures echo = figures({.connections = 1}, costs);
  const TimeNs there = costs.client.send_ns + scheduler.wake_latency_ns + costs.server.event_ns +
                       costs.server.receive_ns + costs.server_ns + costs.server.send_ns;
  const TimeNs back = scheduler.wake_latency_ns + costs.client.event_ns + costs.client.receive_ns;
  EXPECT_EQ(echo.latency_ns, double(there + back));
  EXPECT_EQ(echo.agent_cpu_ns, 0);
  EXPECT_NEAR(echo.server_cpu_ns,
              double(costs.server.wait_ns + costs.server.event_ns + costs.server.receive_ns + costs.server_ns +
                     costs.server.send_ns + costs.wakes.wake_ns),
              10)
      << "the last one may have begun";
}

TEST(SimulatedRequests, TheSlowestCoreBoundsTheRate) {
  RequestCosts costs = kernel_costs();
  costs.wakes = {};  // others than the slowest sleep now and then
  costs.client.wait_ns = costs.server.wait_ns = 0;
  const auto of_each = [](const CallCosts& calls, TimeNs own) {
    return double(calls.event_ns + calls.receive_ns + calls.send_ns + own);
  };
  const double client_ns = of_each(costs.client, costs.client_ns), server_ns = of_each(costs.server, costs.server_ns);
  const RequestFigures own = figures({.connections = 32}, costs);
  EXPECT_NEAR(own.per_second * client_ns / second_ns, 1, 0.03) << "the client's, which never sleeps";
  EXPECT_NEAR(own.latency_ns, 32 * client_ns, 3 * client_ns) << "all the others come first";
  const RequestFigures shared = figures({.connections = 32, .client_core = 0, .server_core = 0}, costs);
  EXPECT_NEAR(shared.per_second * (client_ns + server_ns) / second_ns, 1, 0.1) << "one core does both";
  EXPECT_LT(shared.per_second * (client_ns + server_ns) / second_ns, 1) << "and switches besides";
  costs.server_ns = 10'000;
  EXPECT_NEAR(figures({.connections = 32}, costs).per_second * of_each(costs.server, costs.server_ns) / second_ns, 1,
              0.03);
}

TEST(SimulatedRequests, AServerThatSpinsSparesAWake) {
  const RequestCosts costs = kernel_costs();
  const RequestFigures asleep = figures({.connections = 1}, costs),
                       spinning = figures({.connections = 1, .server_spins = true}, costs);
  const double spared = asleep.latency_ns - spinning.latency_ns;
  EXPECT_GE(spared, double(scheduler.wake_latency_ns - 2 * costs.server.wait_ns));
  EXPECT_LE(spared, double(scheduler.wake_latency_ns));
}

// The real stack and service say how many frames and commands there are.
TEST(SimulatedRequests, AnAgentWithALoadTakesItsCostsOfEachFrame) {
  RequestCosts costs = agent_costs();
  costs.wakes = {};
  costs.agent.round_ns = 100;
  costs.agent.in_round_ns = costs.agent.out_round_ns = 0;
  costs.agent.in_ns = 2'000;
  costs.agent.out_ns = 3'000;
  const RequestFigures busy = figures({.connections = 32, .over_agent = true}, costs);
  EXPECT_NEAR(busy.per_second * 5'000 / second_ns, 1, 0.05) << "one frame in and one out, at its core";
  EXPECT_NEAR(busy.agent_cpu_ns, 5'000, 250);
}

TEST(SimulatedRequests, AnEchoOverAnAgentThatIsAwakeTakesItsSteps) {
  const RequestCosts costs = agent_costs();
  const RequestFigures echo = figures({.connections = 1, .over_agent = true}, costs);
  const AgentCosts& agent = costs.agent;
  const TimeNs least = costs.client.send_ns + agent.in_round_ns + agent.in_ns + costs.server.event_ns +
                       costs.server.receive_ns + costs.server_ns + costs.server.send_ns + agent.out_round_ns +
                       agent.out_ns + scheduler.wake_latency_ns + costs.client.event_ns + costs.client.receive_ns;
  EXPECT_GE(echo.latency_ns, double(least));
  // Each looks again after a while; no other one sleeps but the client.
  EXPECT_LE(echo.latency_ns, double(least + 4 * (agent.round_ns + agent.yield_ns) + 2 * costs.server.wait_ns + 200));
}

// With the client on the agent's core, the agent's time comes on top of the client's.
TEST(SimulatedRequests, AnAgentWithAnotherCoreServesMore) {
  const RequestCosts costs = agent_costs();
  const RequestSetUp shared{.connections = 32, .over_agent = true, .client_core = 1, .server_core = 0, .agent_core = 1};
  const RequestSetUp own{.connections = 32, .over_agent = true};
  const RequestFigures both = figures(shared, costs), alone = figures(own, costs);
  EXPECT_LT(both.per_second, second_ns / (both.client_cpu_ns + both.agent_cpu_ns) * 1.001);
  EXPECT_GT(alone.per_second, 1.3 * both.per_second);
}

// A program that is silent between its requests has its agent asleep each time: nothing is lost on the way to it.
TEST(SimulatedRequests, AgentAndServerAreWoken) {
  RequestCosts costs = agent_costs();
  costs.client_ns = 3 * millisecond_ns;
  SimulatedRequests world({.connections = 1, .over_agent = true}, costs, scheduler);
  const RequestFigures sparse = world.run(300 * millisecond_ns);
  EXPECT_GT(sparse.per_second, 300);
  EXPECT_GT(sparse.latency_ns, 2 * scheduler.wake_latency_ns);
  EXPECT_LT(sparse.latency_ns, 10 * scheduler.wake_latency_ns);
}

TEST(SimulatedRequests, NoCoreDoesTwoThingsAtOnce) {
  std::mt19937_64 random(22);
  const auto up_to = [&](std::uint64_t most) { return random() % (most + 1); };
  const auto some_ns = [&](std::uint64_t most) { return static_cast<TimeNs>(up_to(most)); };
  for (int world_number = 0; world_number < 40; ++world_number) {
    SCOPED_TRACE(world_number);
    RequestCosts costs;
    for (CallCosts* each : {&costs.client, &costs.server})
      *each = {
          .wait_ns = 1 + some_ns(800), .event_ns = some_ns(100), .receive_ns = some_ns(900), .send_ns = some_ns(4'000)};
    costs.agent = {.round_ns = 50 + some_ns(500),
                   .in_round_ns = some_ns(900),
                   .in_ns = some_ns(900),
                   .out_round_ns = some_ns(2'000),
                   .out_ns = some_ns(4'000),
                   .yield_ns = some_ns(500)};
    costs.wakes = {.wake_ns = some_ns(3'000), .datagram_ns = some_ns(2'000), .sleep_ns = some_ns(900)};
    costs.client_ns = some_ns(5'000);
    costs.server_ns = some_ns(5'000);
    const RequestSetUp set_up{.connections = 1 + up_to(80),
                              .over_agent = world_number % 2 == 0,
                              .receives_first = up_to(1) == 1,
                              .server_spins = up_to(1) == 1,
                              .client_core = up_to(2),
                              .server_core = up_to(2),
                              .agent_core = up_to(2)};
    SimulatedRequests world(
        set_up, costs, {.wake_latency_ns = some_ns(40'000), .switch_ns = some_ns(3'000), .preempts = up_to(1) == 1});
    std::map<std::size_t, TimeNs> free_at, busy;
    world.cores().watch([&](const SimulatedCores::Worked& worked) {
      EXPECT_GE(worked.begin, free_at[worked.core]) << "core " << worked.core;
      EXPECT_EQ(worked.core, worked.process->core());
      free_at[worked.core] = worked.end;
      busy[worked.core] += worked.end - worked.begin;
    });
    const TimeNs began = world.cores().now();
    // A server that spins on the client's core lets it send one first request in each millisecond.
    const bool starves = set_up.server_spins && set_up.client_core == set_up.server_core;
    const TimeNs spins_ns = starves ? static_cast<TimeNs>(4 * set_up.connections) * millisecond_ns : 0;
    const RequestFigures all = world.run(std::max(duration / 4, spins_ns));
    EXPECT_GT(all.per_second, 0);
    EXPECT_GE(world.sent(), world.answered());
    EXPECT_LE(world.sent() - world.answered(), set_up.connections) << "none was lost, and none came twice";
    EXPECT_GE(all.latency_ns, double(costs.client.send_ns + costs.server.receive_ns + costs.server_ns +
                                     costs.server.send_ns + costs.client.receive_ns));
    for (const auto& [core, ns] : busy) {
      EXPECT_EQ(ns, world.cores().busy_ns(core));
      EXPECT_LE(ns, std::max(world.cores().now(), free_at[core]) - began);
    }
  }
}

}  // namespace
}  // namespace offpath::tcp
