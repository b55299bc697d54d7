#include "tcp_cores.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "tcp_claims.h"
#include "testing/tcp/simulated_requests.h"

namespace offpath::bench {
namespace {

using tcp::RequestCosts;
using tcp::RequestFigures;
using tcp::RequestSetUp;
using tcp::SimulatedRequests;

constexpr std::size_t busy_connections = 32, redis_connections = 50;
constexpr TimeNs settle_ns = 3 * millisecond_ns;  // until the agent, and a server that spins, sleep after their turn
constexpr std::string_view alone = "every process on a core of its own, simulated";

// Of one side in one set-up, as often as it was measured or simulated: nanoseconds.
struct Observed {
  std::vector<double> request, latency, server_cpu, all_cpu;

  void add(const RequestFigures& figures, bool with_agent) {
    request.push_back(double(second_ns) / figures.per_second);
    latency.push_back(figures.latency_ns);
    server_cpu.push_back(figures.server_cpu_ns);
    all_cpu.push_back(figures.server_cpu_ns + (with_agent ? figures.agent_cpu_ns : 0));
  }
};

// The sides that claims compare: how the kernel's server waits, and Offpath.
enum Side : std::size_t { asleep, spinning, offloaded, sides };
constexpr std::array<std::string_view, sides> side_names{"in the kernel", "in the kernel, its server spins",
                                                         "over the agent"};

// A kind of requests, with what was measured of it and simulated.
struct Workload {
  std::string name;               // "64 B, 32 busy"
  std::string requests, latency;  // names of its claims
  std::string latency_unit;
  double latency_scale;  // from ns
  RequestSetUp set_up{};
  std::array<Observed, sides> measured{}, simulated{};  // on the two cores that there are
  Observed apart{};                                     // Offpath's, with a core for each process
  // Processor time of a request, of redis's client and of the kernel's server: what the programs do themselves is
  // chosen such that the simulation takes as much.
  std::optional<std::array<double, 2>> cpu_ns{};
};

RequestFigures simulate(RequestSetUp set_up, Side side, bool shared, const RequestCosts& costs,
                        const tcp::SchedulerCosts& scheduler, TimeNs duration) {
  set_up.over_agent = side == offloaded;
  set_up.server_spins = side == spinning;
  set_up.server_core = 0;
  set_up.agent_core = 1;
  set_up.client_core = side == offloaded && !shared ? 2 : 1;
  return SimulatedRequests(set_up, costs, scheduler).run(duration);
}

void choose_own_time(const Workload& workload, MeasuredCosts& costs, TimeNs duration) {
  RequestCosts& kernel = costs.kernel;
  kernel.client_ns = kernel.server_ns = 0;
  for (int i = 0; i < 6 && workload.cpu_ns; ++i) {
    const RequestFigures taken = simulate(workload.set_up, asleep, true, kernel, costs.scheduler, duration);
    const auto add = [](TimeNs& own, double missing) { own = std::max<TimeNs>(own + static_cast<TimeNs>(missing), 0); };
    add(kernel.client_ns, (*workload.cpu_ns)[0] - taken.client_cpu_ns);
    add(kernel.server_ns, (*workload.cpu_ns)[1] - taken.server_cpu_ns);
  }
  for (RequestCosts* each : {&costs.agent_apart, &costs.agent_beside}) {
    each->client_ns = kernel.client_ns;
    each->server_ns = kernel.server_ns;
  }
}

void simulate_all(Workload& workload, MeasuredCosts costs, TimeNs duration) {
  choose_own_time(workload, costs, duration / 2);
  for (const Side side : {asleep, spinning})
    workload.simulated[side].add(simulate(workload.set_up, side, true, costs.kernel, costs.scheduler, duration), false);
  workload.simulated[offloaded].add(
      simulate(workload.set_up, offloaded, true, costs.agent_beside, costs.scheduler, duration), true);
  workload.apart.add(simulate(workload.set_up, offloaded, false, costs.agent_apart, costs.scheduler, duration), true);
}

// ---- what is measured of the same

class BusyMeasurement {
 public:
  [[nodiscard]] static Result<BusyMeasurement> open(const CoresUnderTest& under_test) {
    BusyMeasurement made;
    for (const StreamServer& server : {under_test.kernel, under_test.spinning, under_test.offloaded}) {
      OFP_ASSIGN(BusyConnections all, BusyConnections::open(server, busy_connections));
      made.all_.push_back(std::move(all));
    }
    return made;
  }
  Status measure(Workload& workload, TimeNs duration) {
    for (std::size_t side = 0; side < sides; ++side) {
      std::vector<double> latencies;
      sleep_ns(settle_ns);
      const TimeNs began = monotonic_ns();
      OFP_ASSIGN(const std::uint64_t echoes, all_[side].run(duration, &latencies));
      workload.measured[side].request.push_back(double(monotonic_ns() - began) / double(echoes));
      workload.measured[side].latency.push_back(median(latencies));
    }
    return {};
  }

 private:
  std::vector<BusyConnections> all_;
};

// "SET 64 B=..." with ten numbers each, divided by semicolons: requests a second and median nanoseconds of the kernel's
// side, of the spinning one and the offloaded one; processor time of a request, nanoseconds, of the kernel's client and
// server.
Result<std::vector<Workload>> redis_workloads(const std::string& text, std::size_t pairs) {
  std::vector<Workload> all;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string one(rest.substr(0, rest.find(';')));
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
    const std::size_t equals = one.find('=');
    std::array<double, 2 * sides + 2> numbers{};
    const char* at = equals == one.npos ? "" : one.c_str() + equals + 1;
    for (double& number : numbers) {
      char* end = nullptr;
      number = std::strtod(at, &end);
      if (end == at || number <= 0)
        return fail(Error::invalid, "--redis: '{}' has not {} numbers", one, numbers.size());
      at = *end == ',' ? end + 1 : end;
    }
    Workload& workload = all.emplace_back(Workload{.name = one.substr(0, equals),
                                                   .requests = "tcp.redis_requests",
                                                   .latency = "tcp.redis_ms_p50",
                                                   .latency_unit = "ms",
                                                   .latency_scale = 1e-6});
    workload.set_up.connections = redis_connections;
    workload.set_up.receives_first = true;
    workload.cpu_ns = {numbers[2 * sides], numbers[2 * sides + 1]};
    for (std::size_t side = 0; side < sides; ++side) {
      workload.measured[side].request.assign(pairs, double(second_ns) / numbers[2 * side]);
      workload.measured[side].latency.assign(pairs, numbers[2 * side + 1]);
    }
  }
  return all;
}

// ---- rows

Claim row(std::string name, const Comparison& compared, double value, double peer_value, std::string unit,
          std::string peer) {
  return {.claim = std::move(name),
          .value = value,
          .unit = std::move(unit),
          .peer = std::move(peer),
          .peer_value = peer_value,
          .ratio = compared.ratio,
          .interval = compared.interval,
          .pairs = compared.pairs,
          .simulated = true};
}

SimulationMiss add_check(Report& report, const Workload& workload, Side side, bool of_rate) {
  const Observed &simulated = workload.simulated[side], &measured = workload.measured[side];
  const Comparison compared = of_rate ? compare(simulated.request, measured.request)
                                      : compare(measured.latency, simulated.latency);  // simulated by measured
  const auto shown = [&](double ns) { return of_rate ? 1e6 / ns : ns * workload.latency_scale; };
  const double simulated_ns = of_rate ? compared.subject : compared.peer,
               measured_ns = of_rate ? compared.peer : compared.subject;
  report.add(row(fmt::format("tcp.simulation_check ({}, {}, {}, two cores)", of_rate ? "requests" : "latency",
                             workload.name, side_names[side]),
                 compared, shown(simulated_ns), shown(measured_ns), of_rate ? "k/s" : workload.latency_unit,
                 "measured"));
  return {either_way(compared.ratio), side_names[side]};
}

void add_claims(Report& report, const Workload& workload) {
  std::array<std::vector<SimulationMiss>, sides> misses;  // of rate, then of latency
  for (const Side side : {asleep, spinning, offloaded})
    for (const bool of_rate : {true, false}) misses[side].push_back(add_check(report, workload, side, of_rate));
  for (const Side side : {asleep, spinning}) {
    const Observed &ours = workload.apart, &theirs = workload.simulated[side];
    const std::string which =
        fmt::format("({}{}, {})", workload.name, side == spinning ? ", its server spins" : "", alone);
    const auto add = [&](Claim claim, std::optional<double> target, std::size_t kind) {
      if (target) {
        claim.target = ratio_at_least(*target);
        claim.why = why_undecided(claim.ratio, *target, {misses[side][kind], misses[offloaded][kind]});
      }
      claim.peer_waits = side == spinning ? "spinning" : "asleep";
      report.add(std::move(claim));
    };
    const Comparison rate = compare(ours.request, theirs.request), latency = compare(ours.latency, theirs.latency),
                     server = compare(ours.server_cpu, theirs.server_cpu), all = compare(ours.all_cpu, theirs.all_cpu);
    add(row(workload.requests + " " + which, rate, 1e6 / rate.subject, 1e6 / rate.peer, "k/s", "kernel, simulated"),
        0.9, 0);
    add(row(workload.latency + " " + which, latency, latency.subject * workload.latency_scale,
            latency.peer * workload.latency_scale, workload.latency_unit, "kernel, simulated"),
        1 / 1.2, 1);
    for (const auto& [what, compared] : {std::pair{"server", server}, {"server and agent", all}})
      add(row(fmt::format("{}_cpu_us (of the {}, {}", workload.requests, what, which.substr(1)), compared,
              compared.subject * 1e-3, compared.peer * 1e-3, "us", "kernel, simulated"),
          {}, 0);
  }
}

void add_costs(Report& report, const std::vector<MeasuredCosts>& all) {
  const auto add = [&](std::string_view what, const auto& of) {
    std::vector<double> ns;
    for (const MeasuredCosts& each : all) ns.push_back(double(of(each)));
    report.add(Claim{.claim = fmt::format("tcp.simulation_cost ({})", what), .value = median(ns), .unit = "ns"});
  };
  const auto add_calls = [&](std::string_view whose, const auto& of) {
    add(fmt::format("{}: a wait", whose), [&](const auto& each) { return of(each).wait_ns; });
    add(fmt::format("{}: each event of a wait", whose), [&](const auto& each) { return of(each).event_ns; });
    add(fmt::format("{}: a receive", whose), [&](const auto& each) { return of(each).receive_ns; });
    add(fmt::format("{}: a send", whose), [&](const auto& each) { return of(each).send_ns; });
  };
  const auto add_agent = [&](std::string_view where, const auto& of) {
    add_calls(fmt::format("client of {}", where), [&](const auto& each) { return of(each).client; });
    add(fmt::format("{}: a round that finds nothing", where),
        [&](const auto& each) { return of(each).agent.round_ns; });
    add(fmt::format("{}: a round with frames from the device", where),
        [&](const auto& each) { return of(each).agent.in_round_ns; });
    add(fmt::format("{}: each of these frames", where), [&](const auto& each) { return of(each).agent.in_ns; });
    add(fmt::format("{}: a round with frames to the device", where),
        [&](const auto& each) { return of(each).agent.out_round_ns; });
    add(fmt::format("{}: each of these frames, the client's kernel included", where),
        [&](const auto& each) { return of(each).agent.out_ns; });
  };
  add_calls("client of the kernel's server", [](const auto& each) { return each.kernel.client; });
  add_calls("server in the kernel", [](const auto& each) { return each.kernel.server; });
  add_calls("offloaded server", [](const auto& each) { return each.agent_apart.server; });
  add_agent("an agent beside its client", [](const auto& each) { return each.agent_beside; });
  add_agent("an agent on a core of its own", [](const auto& each) { return each.agent_apart; });
  add("a wake of another core, for the waker", [](const auto& each) { return each.kernel.wakes.wake_ns; });
  add("a wake of its own core, for the waker", [](const auto& each) { return each.kernel.wakes.wake_here_ns; });
  add("a wake, until the other core goes on", [](const auto& each) { return each.scheduler.wake_latency_ns; });
  add("a datagram that wakes", [](const auto& each) { return each.kernel.wakes.datagram_ns; });
  add("to fall asleep", [](const auto& each) { return each.kernel.wakes.sleep_ns; });
  add("a switch between threads of a core", [](const auto& each) { return each.scheduler.switch_ns; });
  add("a yield of a core that nobody else wants", [](const auto& each) { return each.agent_apart.agent.yield_ns; });
}

}  // namespace

Status measure_cores(const CoresUnderTest& under_test, const Options& options, Report& report) {
  const std::size_t pairs = options.pairs().pairs;
  const TimeNs duration = (options.quick ? 5 : 30) * millisecond_ns, turn = (options.quick ? 20 : 100) * millisecond_ns;
  OFP_ASSIGN(std::vector<Workload> workloads, redis_workloads(under_test.redis, pairs));
  workloads.insert(workloads.begin(), Workload{.name = fmt::format("64 B, {} busy", busy_connections),
                                               .requests = "tcp.requests",
                                               .latency = "tcp.request_us_p50",
                                               .latency_unit = "us",
                                               .latency_scale = 1e-3,
                                               .set_up = {.connections = busy_connections}});
  OFP_ASSIGN(const auto meter, CostMeter::open(under_test.costs));
  OFP_TRY(pin_to_core(options.agent_core));
  OFP_ASSIGN(BusyMeasurement busy, BusyMeasurement::open(under_test));
  std::vector<MeasuredCosts> costs;
  for (std::size_t i = 0; i < pairs; ++i) {
    OFP_ASSIGN(const MeasuredCosts& measured, meter->measure(options.quick));
    costs.push_back(measured);
    OFP_TRY(pin_to_core(options.agent_core));
    OFP_TRY(busy.measure(workloads.front(), turn));
    for (Workload& each : workloads) simulate_all(each, measured, duration);
  }
  for (const Workload& each : workloads) add_claims(report, each);
  add_costs(report, costs);
  return {};
}

}  // namespace offpath::bench
