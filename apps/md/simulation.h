// One simulation on this rank: its atoms, their lists, and the phases of a step. Read this first, then atoms.h,
// forces/forces.h, neighbours/neighbour_list.h and ranks/halo.h.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "md/atoms.h"
#include "md/files/data_file.h"
#include "md/files/restart.h"
#include "md/forces/forces.h"
#include "md/integrate.h"
#include "md/neighbours/bins.h"
#include "md/neighbours/neighbour_list.h"
#include "md/offload/coworker.h"
#include "md/offload/offloaded.h"
#include "md/offload/share_balance.h"
#include "md/ranks/domain.h"
#include "md/ranks/force_exchange.h"
#include "md/ranks/halo.h"
#include "md/ranks/ranks.h"
#include "md/settings.h"
#include "md/thermo.h"
#include "md/thermostat.h"

namespace md {

// Seconds spent in the paper's phases: communication is exchange, borders and communicate.
struct PhaseTimes {
  double force = 0, neighbour = 0, sort = 0, communicate = 0, integrate = 0;
};

// Of steps with forces elsewhere: seconds of the host, whose `force` is its wait, and of the coworker, which begins
// after the host's halo.
struct ForceSteps {
  std::int64_t count = 0;
  double halo = 0;  // of host.communicate
  PhaseTimes host;
  CoworkerTimes coworker;
};

class Simulation {
 public:
  // Creates the atoms. `coworker` does the work of settings.offload. Throws BadInput.
  Simulation(const Settings& settings, Ranks& ranks, std::unique_ptr<Coworker> coworker = nullptr);

  // The reason why a coworker does not support these settings, with an alternative; empty if it does.
  static std::string why_not(Offload mode, const Settings& settings);
  // The form of a coworker's lists and forces.
  static OffloadShape shape_of(const Settings& settings) {
    return {settings.agent_threads, settings.threads, settings.precision};
  }

  // Makes the first lists and forces. Throws BadInput if atoms overlap.
  void start();
  void step();

  // Changes the coworker's mode from the next step on (not `automatic`); that step makes new lists.
  void switch_to(Offload mode) { next_mode_ = mode; }
  [[nodiscard]] Offload mode() const { return settings_.offload; }
  [[nodiscard]] bool has_coworker() const { return coworker_ != nullptr; }
  // Has the coworker compute unused forces or a list, while no mode is in use.
  void begin_probe(Offload what);
  // Whether that has ended; then sets its times.
  [[nodiscard]] bool probe_over(CoworkerTimes& times);
  void be_patient(double seconds);
  // Sets the side that exchanges positions and forces in steps with forces elsewhere. `agent` only if the agents have
  // met.
  void exchange_by(Exchange exchange) { exchange_ = exchange; }
  [[nodiscard]] Exchange exchange() const { return exchange_; }
  // Whether the coworkers of all ranks reach each other. They try before forces elsewhere, unless the settings say
  // `host`.
  [[nodiscard]] bool coworkers_meet() const { return coworkers_meet_; }
  // The reason if they do not.
  [[nodiscard]] const std::string& coworkers_apart() const { return coworkers_apart_; }
  // The highest speed of this rank's own atoms.
  [[nodiscard]] double fastest() const;
  // Values of the last step. Computes forces again if that step did not sum up energies.
  Thermo thermo();
  // Completes the velocities of the last step, which lack its second half kick until then.
  void complete_step() { finish_kick(); }
  // Writes a state to continue from, after the last step.
  void save(const std::string& path);
  // The next step will be asked for its thermo: it sums up energies.
  void expect_thermo() { sums_wanted_ = true; }

  [[nodiscard]] std::int64_t steps_done() const { return steps_done_; }
  [[nodiscard]] std::int64_t atoms_in_all() const { return atoms_in_all_; }
  [[nodiscard]] const Atoms& atoms() const { return atoms_; }
  [[nodiscard]] const Domain& domain() const { return domain_; }
  [[nodiscard]] const Settings& settings() const { return settings_; }
  [[nodiscard]] std::string_view kernels() const { return kernels_.name; }
  [[nodiscard]] const PhaseTimes& times() const { return times_; }
  [[nodiscard]] const NeighbourList& list() const { return list_; }
  [[nodiscard]] std::int64_t rebuilds() const { return rebuilds_; }
  // The reason why the coworker was lost; empty if it was not lost, or never existed.
  [[nodiscard]] const std::string& coworker_lost() const { return coworker_lost_; }
  [[nodiscard]] std::int64_t lists_by_coworker() const { return lists_by_coworker_; }
  [[nodiscard]] std::int64_t forces_by_coworker() const { return forces_by_coworker_; }
  // The steps with forces elsewhere so far.
  [[nodiscard]] const ForceSteps& force_steps() const { return force_steps_; }
  // The coworker's part of this rank's atoms, with Offload::share.
  [[nodiscard]] double share() const;
  // The largest distance that an atom of this rank has moved between two lists so far.
  [[nodiscard]] double furthest() const { return furthest_; }
  // Steps in which an atom of this rank was beyond its list before all ranks knew (simulation_offloaded.cc).
  [[nodiscard]] std::int64_t steps_too_late() const { return steps_too_late_; }

 private:
  void make_grid(const Box& whole);
  void create_lattice();
  void read_data();
  void use_data(const DataFile& data);
  void use_masses(std::vector<double> masses);
  void refuse_combinations() const;
  void resume();
  void check_same(const RestartHeader& there) const;
  void make_thermostat();
  [[nodiscard]] RestartHeader restart_header() const;
  void list_neighbours();
  // In single precision a pair is in both lists.
  [[nodiscard]] bool half_lists() const { return settings_.half && settings_.precision == Precision::whole; }
  void drift();
  void refresh_ghosts();
  void note_furthest();
  void rebuild();
  void compute_forces();
  void finish_kick();
  void scale_by_thermostat();
  [[nodiscard]] bool lists_due();
  [[nodiscard]] double displacement() const;
  void check_start();
  [[nodiscard]] double list_margin() const;

  // Steps with a coworker (simulation_offloaded.cc).
  void meet_coworkers();
  void lend_list();
  void step_with_forces_elsewhere();
  void begin_forces_elsewhere();
  void order_forces();
  void take_forces(std::size_t handed);
  void note_force_step(const PhaseTimes& before);
  void step_with_lists_elsewhere();
  [[nodiscard]] bool lists_run_out(bool& ask);
  [[nodiscard]] std::array<double, 5> guarded_now(bool asks);
  void agree_now();
  void end_agreement();
  void use_bins_elsewhere();
  void rebuild_for_lists_elsewhere();
  void adopt_list();
  void request_list();
  void step_into_next_mode();
  void hand_over_positions(std::size_t atoms);
  // Steps with shared forces (simulation_shared.cc).
  void share_atoms();
  void begin_share();
  PairSums compute_shared_forces();
  void take_share(PairSums& sums);
  void take_back_share(const CoworkerLost& error);
  void lose_coworker(const CoworkerLost& error);
  [[nodiscard]] bool lost_on_any_rank() const;
  void go_on_without();

  Settings settings_;
  Ranks& ranks_;
  const Kernels& kernels_;
  std::unique_ptr<Forces> forces_;
  std::vector<double> tables_;  // of the forces, for a coworker
  Domain domain_;
  Atoms atoms_;
  std::int64_t atoms_in_all_ = 0;
  std::unique_ptr<Halo> halo_;
  std::unique_ptr<Bins> bins_;
  NeighbourList list_;

  std::unique_ptr<Coworker> coworker_;
  std::unique_ptr<Coworker> lost_coworker_;  // until new lists are made: its own may be in use
  Offload next_mode_ = Offload::none, probed_ = Offload::none;
  bool chosen_later_ = false;  // --offload auto
  std::string coworker_lost_;
  std::int64_t lists_by_coworker_ = 0, forces_by_coworker_ = 0;
  // The atoms' positions when the current list was made, and the one being made.
  Array<double> list_positions_, requested_positions_;
  double strayed_ = 0, requested_strayed_ = 0;  // the largest distance of this rank's atoms from their bins at that
                                                // time
  bool list_requested_ = false;  // the same on all ranks, like the steps in which lists are requested and adopted
  bool list_too_large_ = false;  // for its room: the host makes one
  Motion moved_;                 // from list_positions_, in the last drift
  // The largest of all ranks, of this step or the one before: by `Guarded`. Pending: the next is under way.
  std::array<double, 5> agreed_{};
  bool agreement_pending_ = false;
  std::int64_t steps_too_late_ = 0;
  Array<double> handed_positions_;  // the positions for the coworker's forces
  Exchange exchange_ = Exchange::host;
  bool coworkers_meet_ = false, meeting_tried_ = false;
  std::string coworkers_apart_;
  bool coworkers_exchange_ = false;  // in this step: they wait for the atoms' places
  Array<Place> places_;
  ForceSteps force_steps_;
  ForceExchange force_exchange_;
  NeighbourList list_before_;  // the list for these forces, while the next one is made
  bool list_lent_ = false;
  double margin_ = 0;  // by which bins and halo are wider than lists

  ShareBalance balance_;
  std::size_t shared_from_ = 0;  // this atom and later ones are the coworker's; the host's lists end before
  bool shares_ = false;          // with Offload::share: not before the first lists have been checked
  bool share_begun_ = false;     // for these positions
  std::chrono::steady_clock::time_point share_begun_at_;

  PairSums pair_sums_;
  bool sums_wanted_ = false, sums_there_ = false;
  bool half_kick_due_ = false;  // the second half kick of the last step
  std::int64_t steps_done_ = 0, rebuilds_ = 0;
  std::vector<double> masses_, half_step_per_mass_;  // one, or one for each type
  std::optional<Thermostat> thermostat_;
  double twice_kinetic_ = 0;  // of all atoms, for the thermostat
  double furthest_ = 0;
  bool lists_there_ = false;  // a resumed run has them before it starts
  PhaseTimes times_;
};

}  // namespace md
