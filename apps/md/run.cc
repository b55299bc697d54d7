#include "md/run.h"

#include <sys/resource.h>

#include <array>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <ctime>
#include <offpath/offpath.hpp>
#include <optional>
#include <random>

#include "md/files/bad_input.h"
#include "md/files/dump.h"
#include "md/offload/agent_coworker.h"
#include "md/offload/auto_offload.h"
#include "md/offload/exchange_choice.h"
#include "md/offload/handover.h"
#include "md/simulation.h"
#include "md/stopwatch.h"

namespace md {
namespace {

// A name for this run's agents, the same on all ranks.
std::string team_of(const Settings& settings, Ranks& ranks) {
  if (settings.exchange == Exchange::host || ranks.count() == 1) return "";
  std::vector<std::byte> name;
  if (ranks.rank() == 0) {
    std::random_device random;
    for (const char c : "offpath-md-" + std::to_string(random()) + "-" + std::to_string(random()))
      name.push_back(static_cast<std::byte>(c));
  }
  ranks.broadcast(name);
  return {reinterpret_cast<const char*>(name.data()), name.size()};
}

std::unique_ptr<Coworker> coworker_for(const Settings& settings, Ranks& ranks) {
  if (settings.offload == Offload::none) return nullptr;
  static_cast<void>(kind_of_lists(settings));  // unsuitable settings are refused before an agent is looked for
  const OffloadShape shape = Simulation::shape_of(settings);
  const std::string team = team_of(settings, ranks);
  if (settings.offload != Offload::automatic) return make_agent_coworker(ranks, shape, team);
  // If the agent cannot do this, or is missing, the run continues without it.
  if (!Simulation::why_not(Offload::list, settings).empty() || !settings.resume_file.empty()) return nullptr;
  try {
    return make_agent_coworker(ranks, shape, team);
  } catch (const offpath::Error& error) {
    std::fprintf(stderr, "offpath-md: warning: continues without an agent: %s\n", error.what());
    return nullptr;
  }
}

class Run {
 public:
  Run(const Settings& settings, Ranks& ranks)
      : settings_(settings), ranks_(ranks), simulation_(settings, ranks, coworker_for(settings, ranks)) {
    const bool resumed = !settings.resume_file.empty();
    const bool writes = ranks.rank() == 0;
    if (writes && !settings.xyz_file.empty()) xyz_.emplace(settings.xyz_file, DumpFile::Format::xyz, resumed);
    if (writes && !settings.dump_file.empty()) dump_.emplace(settings.dump_file, DumpFile::Format::lammps, resumed);
    if (!settings.stream.empty()) handover_.emplace(settings.stream, simulation_.atoms_in_all());
  }

  void all_steps() {
    const std::int64_t first = simulation_.steps_done();
    if (settings_.steps < first) {
      throw BadInput(settings_.resume_file + " continues after step " + std::to_string(first) + "; -n " +
                     std::to_string(settings_.steps) + " is before that");
    }
    simulation_.start();
    if (settings_.offload == Offload::automatic) auto_offload_.emplace(simulation_, ranks_);
    if (simulation_.settings().exchange == Exchange::automatic) exchange_choice_.emplace(simulation_, ranks_);
    print_head();
    began_ = std::chrono::steady_clock::now();
    if (first == 0) {
      print_row();
      write_snapshots();
    }
    while (simulation_.steps_done() < settings_.steps) {
      const std::int64_t next = simulation_.steps_done() + 1;
      if (prints(next)) simulation_.expect_thermo();
      one_step();
      if (prints(next)) print_row();
      write_snapshots();
      if (!settings_.restart_file.empty() && (next % settings_.restart_interval == 0 || next == settings_.steps)) {
        simulation_.save(settings_.restart_file);
      }
    }
    seconds_ = seconds_since_start();
    if (handover_) handover_->finish();
    finish(settings_.steps - first);
  }

  void one_step() {
    const std::int64_t forces = simulation_.forces_by_coworker();
    double seconds = 0;
    {
      const Stopwatch watch(seconds);
      simulation_.step();
    }
    after_step(seconds, simulation_.forces_by_coworker() > forces);
    tell_of_loss();
  }

 private:
  void tell_of_loss() {
    if (told_of_loss_ || ranks_.rank() != 0 || simulation_.coworker_lost().empty()) return;
    told_of_loss_ = true;
    std::fprintf(stderr, "offpath-md: warning: continued without the agent from step %" PRId64 " on: %s\n",
                 simulation_.steps_done(), simulation_.coworker_lost().c_str());
  }
  // The cost of an exchange that is on trial is not charged to the mode.
  void after_step(double seconds, bool forces_elsewhere) {
    const bool tries = exchange_choice_ && !exchange_choice_->settled() && simulation_.mode() == Offload::force &&
                       (!auto_offload_ || auto_offload_->settled());
    if (tries && forces_elsewhere) exchange_choice_->step_done(seconds);
    if (!tries && auto_offload_) auto_offload_->step_done(seconds);
  }
  [[nodiscard]] double seconds_since_start() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  }

  [[nodiscard]] bool prints(std::int64_t step) const {
    return step == settings_.steps || (settings_.thermo_interval > 0 && step % settings_.thermo_interval == 0);
  }

  void print_head() const {
    if (ranks_.rank() != 0) return;
    const Settings& s = simulation_.settings();
    std::printf("# offpath-md: %" PRId64 " atoms, %s, cut-off %g, skin %g, %d ranks, %d threads each, kernels %s\n",
                simulation_.atoms_in_all(), s.potential == Potential::lj ? "lj" : "eam", s.cut, s.skin, ranks_.count(),
                s.threads, std::string(simulation_.kernels()).c_str());
    std::printf("# step T U P time\n");
  }

  void print_row() {
    const Thermo now = simulation_.thermo();
    if (ranks_.rank() == 0) {
      std::printf("%s\n", row_of(simulation_.steps_done(), now, seconds_since_start()).c_str());
      std::fflush(stdout);
    }
    energy_last_ = now.energy + now.kinetic;
    if (!energy_first_) energy_first_ = energy_last_;
  }

  void write_snapshots() {
    const std::int64_t step = simulation_.steps_done();
    const bool wanted = !settings_.xyz_file.empty() || !settings_.dump_file.empty();
    if (wanted && step % settings_.dump_interval == 0) {
      simulation_.complete_step();
      const std::vector<Particle> particles = gather_particles(simulation_.atoms(), ranks_);
      if (xyz_) xyz_->write(step, simulation_.domain().whole, particles);
      if (dump_) dump_->write(step, simulation_.domain().whole, particles);
    }
    if (handover_ && step % settings_.stream_interval == 0) {
      simulation_.complete_step();
      handover_->send(step, ranks_.rank(), simulation_.atoms());
    }
  }

  void finish(std::int64_t steps) {
    double furthest = simulation_.furthest(), late = static_cast<double>(simulation_.steps_too_late());
    ranks_.maximum({&furthest, 1});
    ranks_.maximum({&late, 1});
    if (ranks_.rank() != 0) return;
    const PhaseTimes& t = simulation_.times();
    const double rate = static_cast<double>(simulation_.atoms_in_all()) * static_cast<double>(steps) / seconds_;
    const double other = seconds_ - t.force - t.neighbour - t.sort - t.communicate - t.integrate;
    std::printf(
        "# seconds: total %.6f force %.6f neighbour %.6f sort %.6f communicate %.6f integrate %.6f other %.6f\n",
        seconds_, t.force, t.neighbour, t.sort, t.communicate, t.integrate, other);
    std::printf("# %.0f atom-steps/s\n", rate);
    if (settings_.offload != Offload::none) {
      std::printf("# by the agent: %" PRId64 " lists, forces of %" PRId64 " steps\n", simulation_.lists_by_coworker(),
                  simulation_.forces_by_coworker());
      if (simulation_.mode() == Offload::share)
        std::printf("# its share of the atoms: %.3f of rank 0's\n", simulation_.share());
    }
    if (auto_offload_) std::printf("# auto: %s\n", auto_offload_->verdict().c_str());
    if (exchange_choice_)
      std::printf("# exchange: %s\n", exchange_choice_->verdict().c_str());
    else if (!simulation_.coworkers_apart().empty())
      std::printf("# exchange: host (%s)\n", simulation_.coworkers_apart().c_str());
    const Settings& s = simulation_.settings();
    // A list that is checked in every step ends before any pair is missed.
    const bool watched = s.trigger == Trigger::displacement && s.interval == 1;
    if (!watched && 2 * furthest > s.skin) {
      std::fprintf(stderr,
                   "offpath-md: warning: an atom went %.3g between two lists, more than half the skin of %g: pairs may "
                   "have been "
                   "missed. A skin of %.2g or an interval shorter than %" PRId64 " would do\n",
                   furthest, s.skin, 2 * furthest, s.interval);
    }
    if (late > 0) {
      std::fprintf(stderr,
                   "offpath-md: warning: in %.0f steps an atom was beyond its list before all ranks knew: it became "
                   "more than twice as fast as any other within a step. Use a smaller time step\n",
                   late);
    }
    write_reports(rate, furthest);
  }

  [[nodiscard]] std::string report(double rate, double furthest) const {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const PhaseTimes& t = simulation_.times();
    const ForceSteps& f = simulation_.force_steps();
    std::array<char, 2048> text{};
    std::snprintf(
        text.data(), text.size(),
        "{\"atoms\": %" PRId64 ", \"steps\": %" PRId64
        ", \"seconds\": %.9g, \"atom_steps_per_s\": %.9g,\n"
        " \"force_s\": %.9g, \"neighbour_s\": %.9g, \"sort_s\": %.9g, \"communicate_s\": %.9g, \"integrate_s\": %.9g,\n"
        " \"rebuilds\": %" PRId64
        ", \"furthest\": %.9g, \"energy_first\": %.15g, \"energy_last\": %.15g,\n"
        " \"resident_bytes_max\": %ld, \"list_bytes\": %zu, \"kernels\": \"%s\",\n"
        " \"lists_by_agent\": %" PRId64 ", \"forces_by_agent\": %" PRId64
        ", \"offload\": \"%s\", \"share\": %.9g,\n"
        " \"exchange\": \"%s\", \"force_steps\": {\"count\": %" PRId64
        ", \"halo_s\": %.9g, \"communicate_s\": %.9g,\n"
        "  \"sort_s\": %.9g, \"neighbour_s\": %.9g, \"wait_s\": %.9g,\n"
        "  \"agent_moved_s\": %.9g, \"agent_computed_s\": %.9g}}\n",
        simulation_.atoms_in_all(), settings_.steps, seconds_, rate, t.force, t.neighbour, t.sort, t.communicate,
        t.integrate, simulation_.rebuilds(), furthest, energy_first_.value_or(0), energy_last_, usage.ru_maxrss * 1024,
        simulation_.list().bytes(), std::string(simulation_.kernels()).c_str(), simulation_.lists_by_coworker(),
        simulation_.forces_by_coworker(), name_of(simulation_.mode()), simulation_.share(),
        name_of(simulation_.exchange()), f.count, f.halo, f.host.communicate - f.halo, f.host.sort, f.host.neighbour,
        f.host.force, f.coworker.moved_s, f.coworker.computed_s);
    return text.data();
  }

  // JSON is also YAML.
  void write_reports(double rate, double furthest) const {
    const std::string text = report(rate, furthest);
    if (settings_.yaml_screen) std::printf("%s", text.c_str());
    if (!settings_.report_file.empty()) write_file(settings_.report_file, text);
    if (!settings_.yaml_file) return;
    const std::time_t now = std::time(nullptr);
    std::tm at{};
    localtime_r(&now, &at);
    std::array<char, 64> name{};
    std::strftime(name.data(), name.size(), "offpath-md-%Y-%m-%d-%H-%M-%S.yaml", &at);
    write_file(name.data(), text);
  }

  static void write_file(const std::string& path, const std::string& text) {
    std::FILE* file = std::fopen(path.c_str(), "w");
    if (file == nullptr) throw BadInput(path + ": cannot be written");
    const bool written = std::fputs(text.c_str(), file) >= 0;
    if (std::fclose(file) != 0 || !written) throw BadInput(path + ": cannot be written");
  }

  const Settings& settings_;
  Ranks& ranks_;
  Simulation simulation_;
  std::optional<DumpFile> xyz_, dump_;
  std::optional<Handover> handover_;
  std::optional<AutoOffload> auto_offload_;
  std::optional<ExchangeChoice> exchange_choice_;
  std::chrono::steady_clock::time_point began_;
  double seconds_ = 0;
  std::optional<double> energy_first_;
  double energy_last_ = 0;
  bool told_of_loss_ = false;
};

}  // namespace

void run(const Settings& settings, Ranks& ranks) { Run(settings, ranks).all_steps(); }

}  // namespace md
