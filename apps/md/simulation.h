// One simulation on this rank: its atoms, their lists, and what a step consists of.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "md/atoms.h"
#include "md/files/restart.h"
#include "md/forces/forces.h"
#include "md/neighbours/bins.h"
#include "md/neighbours/neighbour_list.h"
#include "md/offload/coworker.h"
#include "md/offload/offloaded.h"
#include "md/ranks/domain.h"
#include "md/ranks/force_exchange.h"
#include "md/ranks/halo.h"
#include "md/ranks/ranks.h"
#include "md/settings.h"
#include "md/thermo.h"

namespace md {

// Seconds spent, the paper's phases: communication is exchange, borders and communicate.
struct PhaseTimes {
  double force = 0, neighbour = 0, sort = 0, communicate = 0, integrate = 0;
};

class Simulation {
 public:
  // Creates the atoms. With `coworker`, which does what settings.offload says. Throws BadInput.
  Simulation(const Settings& settings, Ranks& ranks, std::unique_ptr<Coworker> coworker = nullptr);

  // Why no coworker does that for these settings, and what to do instead; empty where one does.
  static std::string why_not(Offload mode, const Settings& settings);
  // What its lists and forces have to be like.
  static OffloadShape shape_of(const Settings& settings) {
    return {settings.agent_threads, settings.threads, settings.precision};
  }

  // Lists and forces for the first time. Throws BadInput where atoms overlap.
  void start();
  void step();

  // From the next step on the coworker does this (not `automatic`); in that step lists are made anew.
  void switch_to(Offload mode) { next_mode_ = mode; }
  [[nodiscard]] Offload mode() const { return settings_.offload; }
  [[nodiscard]] bool has_coworker() const { return coworker_ != nullptr; }
  // Has the coworker compute something that nobody needs, while its mode is none: forces, or a list.
  void begin_probe(Offload what);
  // Is that over? Then says what it took.
  [[nodiscard]] bool probe_over(CoworkerTimes& times);
  void be_patient(double seconds);
  // Of all own atoms of this rank.
  [[nodiscard]] double fastest() const;
  // Of the step done last. Computes forces again where that step did not sum up energies.
  Thermo thermo();
  // Velocities are those of the end of the step (until then they lack its second half kick).
  void complete_step() { finish_kick(); }
  // Writes a state to go on from, after the step done last.
  void save(const std::string& path);
  // The next step will be asked for its thermo: it sums up energies as it goes.
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
  // Why there is no coworker any more; empty while there is one, or was none.
  [[nodiscard]] const std::string& coworker_lost() const { return coworker_lost_; }
  [[nodiscard]] std::int64_t lists_by_coworker() const { return lists_by_coworker_; }
  [[nodiscard]] std::int64_t forces_by_coworker() const { return forces_by_coworker_; }
  // The furthest that any atom of this rank went between two lists, so far.
  [[nodiscard]] double furthest() const { return furthest_; }

 private:
  void make_grid(const Box& whole);
  [[nodiscard]] double energy_per_v2() const;
  void create_lattice();
  void read_data();
  void resume(const Restart& restart);
  [[nodiscard]] RestartHeader restart_header() const;
  void list_neighbours();
  // In single precision a pair stands in both lists.
  [[nodiscard]] bool half_lists() const { return settings_.half && settings_.precision == Precision::whole; }
  void drift();
  void refresh_ghosts();
  void note_furthest();
  void rebuild();
  void compute_forces();
  void finish_kick();
  [[nodiscard]] bool lists_due();
  [[nodiscard]] double displacement() const;
  void check_start();
  [[nodiscard]] double list_margin() const;

  // Steps with a coworker (simulation_offloaded.cc).
  void step_with_forces_elsewhere();
  void take_forces(std::size_t handed);
  void step_with_lists_elsewhere();
  [[nodiscard]] bool lists_run_out(bool& ask);
  void rebuild_for_lists_elsewhere();
  void adopt_list();
  void request_list();
  void step_into_next_mode();
  void hand_over_positions();
  void lose_coworker(const CoworkerLost& error);
  [[nodiscard]] bool lost_on_any_rank() const;
  void go_on_without();

  Settings settings_;
  Ranks& ranks_;
  const Kernels& kernels_;
  std::unique_ptr<Forces> forces_;
  Domain domain_;
  Atoms atoms_;
  std::int64_t atoms_in_all_ = 0;
  std::unique_ptr<Halo> halo_;
  std::unique_ptr<Bins> bins_;
  NeighbourList list_;

  std::unique_ptr<Coworker> coworker_;
  Offload next_mode_ = Offload::none, probed_ = Offload::none;
  bool chosen_later_ = false;  // --offload auto
  std::string coworker_lost_;
  std::int64_t lists_by_coworker_ = 0, forces_by_coworker_ = 0;
  // Where atoms were when the list in use was made, and the one that is being made.
  Array<double> list_positions_, requested_positions_;
  double strayed_ = 0, requested_strayed_ = 0;  // how far from their bins atoms were then, all ranks
  bool list_requested_ = false;
  double gone_ = 0;                 // the furthest from list_positions_, in the drift done last
  Array<double> handed_positions_;  // what the coworker computes forces of
  ForceExchange force_exchange_;
  NeighbourList list_before_;  // what it computes them with, while the next one is made
  bool list_lent_ = false;
  double margin_ = 0;  // by which bins and halo are wider than lists

  PairSums pair_sums_;
  bool sums_wanted_ = false, sums_there_ = false;
  bool half_kick_due_ = false;  // the second one of the step done last
  std::int64_t steps_done_ = 0, rebuilds_ = 0;
  double half_step_per_mass_ = 0, furthest_ = 0;
  bool lists_there_ = false;  // a resumed run has them before it starts
  PhaseTimes times_;
};

}  // namespace md
