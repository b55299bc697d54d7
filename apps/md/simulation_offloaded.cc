// Steps in which a coworker takes part.
//
// Forces elsewhere (the paper's): in a step that makes new lists, the coworker computes forces with the old ones, while the
// host exchanges, sorts and makes the new ones; then the forces are put into the new order. The old list serves one step
// longer than it would.
//
// Lists elsewhere: the coworker makes the next list from a snapshot of positions while the host goes on with the one it has.
// Atoms keep their places in memory meanwhile (no exchange, no sort), so the indices in the new list are right. A list
// serves while no atom went further than half the skin since its snapshot: that is measured in every step, and when it runs
// out before the next list is there, the host waits. So nothing is ever missed. Atoms stray from their bins; bins and halo
// are wider by a margin, and when half of that is used up, the host exchanges, sorts and makes a list itself.
#include <array>

#include "md/displacement.h"
#include "md/simulation.h"
#include "md/stopwatch.h"

namespace md {
namespace {

constexpr double margin_in_skins = 3;
// A new list is asked for when so much of what a list allows is used up.
constexpr double request_at = 0.4;

}  // namespace

double Simulation::list_margin() const { return settings_.offload == Offload::list ? margin_in_skins * settings_.skin : 0; }

void Simulation::lose_coworker(const CoworkerLost& error) {
  coworker_lost_ = error.what();
  coworker_.reset();
  list_requested_ = false;
}

void Simulation::step_with_forces_elsewhere() {
  bool elsewhere = true;
  refresh_ghosts();
  try {
    const Stopwatch watch(times_.force);
    coworker_->begin_forces({settings_.epsilon, settings_.sigma, settings_.cut}, atoms_);
    coworker_->wait_pulled();
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
    elsewhere = false;
  }
  // The forces are not there yet: what travels with each atom in their place is where it was.
  for (std::size_t i = 0; i < atoms_.own; ++i) atoms_.f[values * i] = static_cast<double>(i);
  rebuild();
  if (elsewhere) {
    try {
      const Stopwatch watch(times_.force);
      const double* f = coworker_->take_forces(pair_sums_);
      for (std::size_t i = 0; i < atoms_.own; ++i) {
        const auto before = static_cast<std::size_t>(atoms_.f[values * i]);
        for (std::size_t d = 0; d < values; ++d) atoms_.f[values * i + d] = f[values * before + d];
      }
      sums_there_ = true;
      sums_wanted_ = false;
      ++forces_by_coworker_;
      coworker_->use_list(list_.blocks[0]);
    } catch (const CoworkerLost& error) {
      lose_coworker(error);
      elsewhere = false;
    }
  }
  if (!elsewhere) compute_forces();
  half_kick_due_ = true;
  ++steps_done_;
}

void Simulation::request_list() {
  try {
    keep_positions(atoms_, requested_positions_);
    coworker_->begin_list(atoms_, settings_.cut + settings_.skin, settings_.half);
    list_requested_ = true;
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
}

void Simulation::adopt_list() {
  try {
    list_.blocks[0].borrowed = coworker_->take_list();
    list_positions_.swap(requested_positions_);
    list_requested_ = false;
    ++lists_by_coworker_;
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
}

bool Simulation::lists_run_out(bool& ask) {
  const Stopwatch watch(times_.neighbour);
  // Ranks agree on what is due: the furthest atom of all decides.
  std::array<double, 2> furthest{furthest_since(atoms_, list_positions_), displacement()};
  ranks_.maximum(furthest);
  const double allowed = settings_.skin / 2;
  try {
    if (list_requested_ && (furthest[0] > allowed || coworker_->list_done())) adopt_list();
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
  std::array<double, 2> now{furthest_since(atoms_, list_positions_), coworker_ ? 0.0 : 1.0};
  ranks_.maximum(now);
  if (now[1] > 0) {  // one rank lost its coworker: all go on without, and miss nothing either
    coworker_.reset();
    list_requested_ = false;
    settings_.offload = Offload::none;
    settings_.trigger = Trigger::displacement;
    settings_.interval = 1;
    return true;
  }
  ask = !list_requested_ && now[0] > request_at * allowed;
  return now[0] > allowed || 2 * furthest[1] > margin_;
}

void Simulation::rebuild_for_lists_elsewhere() {
  try {
    if (list_requested_) (void)coworker_->take_list();  // of atoms in an order that ends here
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
  list_requested_ = false;
  rebuild();
  try {
    if (coworker_) coworker_->use_bins(*bins_, atoms_.own);
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
}

void Simulation::step_with_lists_elsewhere() {
  try {
    const Stopwatch watch(times_.neighbour);
    if (list_requested_) coworker_->wait_pulled();
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
  drift();
  bool ask = false;
  if (lists_run_out(ask)) {
    rebuild_for_lists_elsewhere();
  } else {
    refresh_ghosts();
    if (ask) request_list();
  }
  compute_forces();
  half_kick_due_ = true;
  ++steps_done_;
}

}  // namespace md
