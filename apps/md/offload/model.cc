#include "md/offload/model.h"

#include <array>
#include <cstdio>
#include <optional>

#include "md/files/bad_input.h"
#include "md/files/number_list.h"
#include "md/files/options.h"
#include "md/offload/agent_coworker.h"
#include "md/offload/auto_offload.h"
#include "md/offload/local_coworker.h"
#include "md/offload/package_energy.h"
#include "md/stopwatch.h"

namespace md {
namespace {

constexpr int warm_steps = 20;  // the crystal melts, and memory is touched
constexpr int probes = 6, probes_warm = 2;
constexpr std::array<Offload, 3> modes{Offload::none, Offload::force, Offload::list};

// A step.
struct Measured {
  double seconds;
  std::optional<double> joules;  // of the processor packages, where they can be read
};

struct Row {
  double interval;
  Offload mode;
  double predicted = 0;
  std::optional<Measured> measured;
};

Simulation& started(Simulation& simulation) {
  simulation.start();
  for (int step = 0; step < warm_steps; ++step) simulation.step();
  return simulation;
}

class Model {
 public:
  Model(const Settings& settings, Ranks& ranks) : settings_(settings), ranks_(ranks) {}

  [[nodiscard]] HostPhases measure_host() const {
    Settings both = settings_;  // kinds of steps
    both.interval = 2;
    HostPhases host = phases_of(both, nullptr);

    Settings watched = settings_;
    watched.trigger = Trigger::displacement;
    watched.interval = 1;
    Simulation by_displacement(watched, ranks_);
    host.list_steps = steps_a_rebuild(started(by_displacement));

    // Offloaded work of list mode is done in this process, and not counted.
    Settings wide = settings_;
    wide.offload = Offload::list;
    const HostPhases with_margin = phases_of(wide, &host.bins_steps);
    host.rebuild_wide = with_margin.rebuild;
    host.communicate_wide = with_margin.communicate;
    return host;
  }

  [[nodiscard]] AgentPhases measure_agent() const {
    Settings settings = settings_;
    settings.offload = Offload::automatic;  // the host alone until the mode is switched
    settings.interval = 1;
    Simulation simulation(settings, ranks_, make_agent_coworker(ranks_, Simulation::shape_of(settings)));
    started(simulation);
    AgentPhases agent;
    agent.force = probed(simulation, Offload::force);
    simulation.switch_to(Offload::list);
    simulation.step();
    agent.list = probed(simulation, Offload::list);
    return agent;
  }

  [[nodiscard]] Measured measure(Offload mode, double interval) const {
    Settings settings = settings_;
    settings.offload = mode;
    settings.interval = static_cast<std::int64_t>(interval);
    Simulation simulation(
        settings, ranks_,
        mode == Offload::none ? nullptr : make_agent_coworker(ranks_, Simulation::shape_of(settings)));
    started(simulation);
    const auto steps = static_cast<double>(settings_.steps);
    double seconds = 0;
    PackageEnergy energy;
    {
      const Stopwatch watch(seconds);
      for (std::int64_t step = 0; step < settings_.steps; ++step) simulation.step();
    }
    std::optional<double> joules = energy.joules();
    if (joules) *joules /= steps;
    if (!simulation.coworker_lost().empty()) throw BrokenRun("the agent was lost: " + simulation.coworker_lost());
    return {seconds / steps, joules};
  }

 private:
  HostPhases phases_of(const Settings& settings, double* steps_a_rebuild_found) const {
    Simulation simulation(
        settings, ranks_,
        settings.offload == Offload::none ? nullptr : make_local_coworker(Simulation::shape_of(settings)));
    started(simulation);
    const std::int64_t before = simulation.rebuilds();
    PhaseMeter meter(simulation);
    for (std::int64_t step = 0; step < settings_.steps; ++step) {
      simulation.step();
      meter.note_step();
    }
    const auto rebuilds = static_cast<double>(simulation.rebuilds() - before);
    if (steps_a_rebuild_found != nullptr)
      *steps_a_rebuild_found = static_cast<double>(settings_.steps) / std::max(1.0, rebuilds);
    return meter.phases();
  }

  double steps_a_rebuild(Simulation& simulation) const {
    const std::int64_t before = simulation.rebuilds();
    for (std::int64_t step = 0; step < settings_.steps; ++step) simulation.step();
    return static_cast<double>(settings_.steps) /
           static_cast<double>(std::max<std::int64_t>(1, simulation.rebuilds() - before));
  }

  static double probed(Simulation& simulation, Offload what) {
    std::vector<double> seconds;
    for (int k = 0; k < probes; ++k) {
      simulation.begin_probe(what);
      CoworkerTimes times;
      while (simulation.has_coworker() && !simulation.probe_over(times)) {
      }
      if (!simulation.has_coworker()) throw BrokenRun("the agent was lost: " + simulation.coworker_lost());
      if (k >= probes_warm) seconds.push_back(times.all_s());
    }
    return median_of(seconds);
  }

  Settings settings_;
  Ranks& ranks_;
};

double predict(const HostPhases& host, const AgentPhases& agent, Offload mode, double interval) {
  if (mode == Offload::none) return seconds_without(host, interval);
  if (mode == Offload::force) return seconds_with_forces_elsewhere(host, agent, interval);
  return seconds_with_lists_elsewhere(host, agent);
}

struct Watts {
  double host, agent;
};

// Both or neither: the power of a machine is not known here.
std::optional<Watts> watts_of(const Options& options) {
  const auto given = [&](const char* name) { return options.own.count(name) != 0; };
  if (given("--host-watts") != given("--agent-watts"))
    throw BadInput("--host-watts and --agent-watts: expected both or none");
  if (!given("--host-watts")) return std::nullopt;
  return Watts{number_of(options.own, "--host-watts", ""), number_of(options.own, "--agent-watts", "")};
}

// The energy of a step: by the watts that were given, otherwise as measured.
std::optional<double> joules_of(const Row& row, const std::optional<Watts>& watts) {
  if (watts) {
    const double seconds = row.measured ? row.measured->seconds : row.predicted;
    return seconds * (watts->host + (row.mode == Offload::none ? 0 : watts->agent));
  }
  return row.measured ? row.measured->joules : std::nullopt;
}

void print(const HostPhases& host, const AgentPhases& agent, const std::vector<Row>& rows,
           const std::optional<Watts>& watts) {
  std::printf("# ms per call force   rebuild  communicate  integrate\n# host    %9.4g %9.4g %9.4g %9.4g",
              1e3 * host.force, 1e3 * host.rebuild, 1e3 * host.communicate, 1e3 * host.integrate);
  std::printf("   in list mode: rebuild %.4g, communicate %.4g\n", 1e3 * host.rebuild_wide,
              1e3 * host.communicate_wide);
  std::printf("# agent   %9.4g            a list takes it %.4g\n", 1e3 * agent.force, 1e3 * agent.list);
  std::printf("# a list is valid for %.3g steps, the bins of list mode for %.3g\n", host.list_steps, host.bins_steps);
  std::printf("# interval mode  predicted ms  measured ms  error %%  joules per step\n");
  for (const Row& row : rows) {
    std::printf("%g %s %.5g ", row.interval, name_of(row.mode), 1e3 * row.predicted);
    if (row.measured)
      std::printf("%.5g %+.1f", 1e3 * row.measured->seconds, 100 * (row.predicted / row.measured->seconds - 1));
    else
      std::printf("- -");
    if (const std::optional<double> joules = joules_of(row, watts))
      std::printf(" %.4g\n", *joules);
    else
      std::printf(" -\n");
  }
}

void write_rows(std::FILE* file, const char* name, const std::vector<Row>& rows, const std::optional<Watts>& watts) {
  std::fprintf(file, "\"%s\": [", name);
  for (std::size_t k = 0; k < rows.size(); ++k) {
    const Row& row = rows[k];
    std::fprintf(file, "%s\n  {\"interval\": %g, \"mode\": \"%s\", \"predicted_s\": %.9g", k == 0 ? "" : ",",
                 row.interval, name_of(row.mode), row.predicted);
    if (const std::optional<double> joules = joules_of(row, watts)) std::fprintf(file, ", \"joules\": %.9g", *joules);
    if (row.measured) std::fprintf(file, ", \"measured_s\": %.9g", row.measured->seconds);
    std::fprintf(file, "}");
  }
  std::fprintf(file, "]");
}

// An agent with that many cores, each that much faster than the measured one: its computation scales by Amdahl's law.
AgentPhases hypothetical(const AgentPhases& measured, double cores, double speed, double parallel) {
  const double factor = (1 - parallel + parallel / cores) / speed;
  return {measured.force * factor, measured.list * factor};
}

}  // namespace

int model(std::span<char* const> arguments, Ranks& ranks) {
  const Options options = read_options(arguments, {"--intervals", "--measure", "--agent-cores", "--agent-speed",
                                                   "--agent-parallel", "--host-watts", "--agent-watts"});
  if (ranks.count() != 1) throw BadInput("offpath-md model supports one rank only");
  const std::vector<double> intervals = numbers_of(options.own, "--intervals", "1,5,10,20");
  const std::vector<double> cores = numbers_of(options.own, "--agent-cores", "1,2,4,8");
  const double speed = number_of(options.own, "--agent-speed", "1"),
               parallel = number_of(options.own, "--agent-parallel", "1");
  const std::optional<Watts> watts = watts_of(options);
  const bool measures = options.own.count("--measure") == 0 || options.own.at("--measure") != "0";
  if (parallel > 1) throw BadInput("--agent-parallel: expected a share of at most 1");

  const Model one(options.settings, ranks);
  const HostPhases host = one.measure_host();
  const AgentPhases agent = one.measure_agent();
  std::vector<Row> rows;
  std::optional<Measured> lists_measured;  // the same for all intervals
  for (const double interval : intervals) {
    for (const Offload mode : modes) {
      Row row{interval, mode, predict(host, agent, mode, interval), std::nullopt};
      if (measures && mode == Offload::list && !lists_measured) lists_measured = one.measure(mode, interval);
      if (measures) row.measured = mode == Offload::list ? lists_measured : one.measure(mode, interval);
      rows.push_back(row);
    }
  }
  print(host, agent, rows, watts);
  std::vector<std::pair<double, std::vector<Row>>> others;
  for (const double count : cores) {
    std::vector<Row> predicted;
    for (const double interval : intervals) {
      for (const Offload mode : modes) {
        predicted.push_back(
            {interval, mode, predict(host, hypothetical(agent, count, speed, parallel), mode, interval), std::nullopt});
      }
    }
    std::printf("# an agent of %g cores, each %g times as fast:\n", count, speed);
    for (const Row& row : predicted) {
      std::printf("#   %g %s %.5g ms\n", row.interval, name_of(row.mode), 1e3 * row.predicted);
    }
    others.emplace_back(count, std::move(predicted));
  }
  if (options.settings.report_file.empty()) return 0;
  std::FILE* file = std::fopen(options.settings.report_file.c_str(), "w");
  if (file == nullptr) throw BadInput(options.settings.report_file + ": cannot be written");
  std::fprintf(file,
               "{\"host\": {\"force_s\": %.9g, \"rebuild_s\": %.9g, \"communicate_s\": %.9g, \"integrate_s\": %.9g, "
               "\"rebuild_wide_s\": %.9g,\n"
               "  \"communicate_wide_s\": %.9g, \"list_steps\": %.9g, \"bins_steps\": %.9g},\n"
               " \"agent\": {\"force_s\": %.9g, \"list_s\": %.9g},\n ",
               host.force, host.rebuild, host.communicate, host.integrate, host.rebuild_wide, host.communicate_wide,
               host.list_steps, host.bins_steps, agent.force, agent.list);
  write_rows(file, "rows", rows, watts);
  std::fprintf(file, ",\n \"hypothetical\": [");
  for (std::size_t k = 0; k < others.size(); ++k) {
    std::fprintf(file, "%s\n {\"cores\": %g, \"speed\": %g, ", k == 0 ? "" : ",", others[k].first, speed);
    write_rows(file, "rows", others[k].second, watts);
    std::fprintf(file, "}");
  }
  std::fprintf(file, "]}\n");
  if (std::fclose(file) != 0) throw BadInput(options.settings.report_file + ": cannot be written");
  return 0;
}

}  // namespace md
