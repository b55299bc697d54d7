// A program behind a card's link, in simulation: the link takes 2 us each way and carries 100 Gb/s, and agent and
// program take the times measured for their code here, without a device. The same on one machine is beside it. Virtual
// time makes the results independent of other load; the costs are measured first.
#include <fmt/format.h>

#include "machine.h"
#include "report.h"
#include "testing/tcp/simulated_link.h"

namespace offpath::bench {
namespace {

using tcp::AreaMirrorCounters;
using tcp::SimulatedCosts;
using tcp::SimulatedLink;
using tcp::SimulatedMeter;

constexpr tcp::TestLink card{.latency_ns = 4 * microsecond_ns, .bytes_per_second = 12'500'000'000};
constexpr std::uint32_t mebibyte = 1 << 20;
constexpr std::size_t message_bytes = 64;
constexpr double echo_us_most = 12, share_least = 90, echo_reads = 3, echo_chains = 2;

double clock_ns() { return double(ticks()) * ns_per_tick(); }

// The times of an agent and a program for echoes, and for a stream's bytes: medians, because other programs may run.
SimulatedCosts measure_costs(const std::optional<tcp::TestLink>& link, bool to_program, bool quick) {
  const std::size_t times = quick ? 3 : 51, echoes = quick ? 50 : 400;
  const std::uint64_t bytes = (quick ? 2ull : 8ull) * mebibyte;
  SimulatedMeter meter{.clock_ns = clock_ns};
  SimulatedLink world({}, link, mebibyte, &meter);
  std::vector<double> turn_ns, answer_ns, byte_ns, program_byte_ns;
  static_cast<void>(world.echo_ns(echoes, message_bytes));
  for (std::size_t i = 0; i < times; ++i) {
    meter = {.clock_ns = clock_ns};
    static_cast<void>(world.echo_ns(echoes, message_bytes));
    turn_ns.push_back(meter.agent_ns / double(meter.turns));
    answer_ns.push_back(meter.program_ns / double(echoes));
  }
  SimulatedCosts costs{.turn_ns = static_cast<TimeNs>(median(turn_ns)),
                       .answer_ns = static_cast<TimeNs>(median(answer_ns))};
  for (std::size_t i = 0; i < times; ++i) {
    meter = {.clock_ns = clock_ns};
    static_cast<void>(world.stream(bytes, to_program));
    byte_ns.push_back(std::max(meter.agent_ns - double(meter.turns) * double(costs.turn_ns), 0.0) / double(bytes));
    program_byte_ns.push_back(meter.program_ns / double(bytes));
  }
  costs.byte_ns = median(byte_ns);
  costs.program_byte_ns = median(program_byte_ns);
  return costs;
}

void add_operations(Report& report, std::string_view what, const AreaMirrorCounters& before,
                    const AreaMirrorCounters& after, double count, bool is_echo) {
  const auto add = [&](std::string_view kind, std::uint64_t sum, std::string unit, double most) {
    report.add(Claim{.claim = fmt::format("tcp.linked_{} (simulated, {})", kind, what),
                     .value = double(sum) / count,
                     .unit = unit,
                     .target = is_echo && most > 0
                                   ? std::optional(value_at_most(most, kind == "reads" ? "reads" : "chains"))
                                   : std::nullopt,
                     .simulated = true});
  };
  add("reads", after.looks + after.fetches - before.looks - before.fetches, "reads", echo_reads);
  add("chains_of_writes", after.chains - before.chains, "chains", echo_chains);
  add("bytes", after.read_bytes + after.written_bytes - before.read_bytes - before.written_bytes, "B", 0);
}

void add_costs(Report& report, std::string_view where, const SimulatedCosts& costs) {
  const auto add = [&](std::string_view what, double value, std::string unit) {
    report.add(Claim{.claim = fmt::format("tcp.linked_cost (simulated with it: {}, {})", what, where),
                     .value = value,
                     .unit = std::move(unit)});
  };
  add("a turn of the agent", double(costs.turn_ns), "ns");
  add("an answer of the program", double(costs.answer_ns), "ns");
}

void measure_echo(const Options& options, Report& report) {
  const std::size_t count = options.quick ? 200 : 10'000;
  std::array<double, 2> echo_ns{};
  for (const bool is_linked : {true, false}) {
    const auto link = is_linked ? std::optional(card) : std::nullopt;
    const SimulatedCosts costs = measure_costs(link, true, options.quick);
    add_costs(report, is_linked ? "beyond the link" : "local area", costs);
    SimulatedLink world(costs, link, mebibyte);
    static_cast<void>(world.echo_ns(count / 10, message_bytes));
    const AreaMirrorCounters before = world.counters();
    echo_ns[is_linked ? 0 : 1] = world.echo_ns(count, message_bytes);
    if (is_linked) add_operations(report, "an echo of 64 B", before, world.counters(), double(count), true);
  }
  report.add(Claim{.claim = "tcp.linked_echo (simulated link of 2 us each way, beyond the local area)",
                   .value = (echo_ns[0] - echo_ns[1]) * 1e-3,
                   .unit = "us",
                   .target = value_at_most(echo_us_most, "us"),
                   .simulated = true});
  report.add(Claim{.claim = "tcp.linked_echo (simulated link of 2 us each way)",
                   .value = echo_ns[0] * 1e-3,
                   .unit = "us",
                   .simulated = true});
}

void measure_stream(const Options& options, bool to_program, Report& report) {
  const SimulatedCosts costs = measure_costs(card, to_program, options.quick);
  const std::string_view way = to_program ? "to the server" : "from the server";
  const std::uint64_t count = options.quick ? 16 : 256;
  SimulatedLink world(costs, card, mebibyte);
  static_cast<void>(world.stream(16 * mebibyte, to_program));
  const AreaMirrorCounters before = world.counters();
  const double share = 100 * world.stream(count * mebibyte, to_program) / double(card.bytes_per_second);
  report.add(
      Claim{.claim = fmt::format("tcp.linked_stream (simulated link of 100 Gb/s, rings of 1 MiB, {}, share of the "
                                 "link)",
                                 way),
            .value = share,
            .unit = "%",
            .target = value_at_least(share_least, "%"),
            .simulated = true});
  for (const auto& [who, ns] : {std::pair{"the agent", costs.byte_ns}, {"the program", costs.program_byte_ns}})
    report.add(Claim{.claim = fmt::format("tcp.linked_cost (simulated with it: a byte of {}, {})", who, way),
                     .value = ns * 1e3,
                     .unit = "ps/B"});
  add_operations(report, fmt::format("1 MiB {}", way), before, world.counters(), double(count), false);
}

Status run(const Options& options, Report& report) {
  measure_echo(options, report);
  for (const bool to_program : {true, false}) measure_stream(options, to_program, report);
  return {};
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) { return offpath::bench::run_main(argc, argv, "tcp", {}, offpath::bench::run); }
