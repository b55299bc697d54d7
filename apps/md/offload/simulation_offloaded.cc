// Steps in which a coworker takes part.
//
// Forces elsewhere (the paper's mode): in a step that makes new lists, the coworker computes forces with the old ones,
// while the host exchanges, sorts and makes the new ones. Then the forces are put into the new order, and forces of
// atoms that left are sent after them. The old list is used for one step longer.
//
// Lists elsewhere: the coworker makes the next list from a snapshot of positions while the host continues with the
// current one. Atoms keep their places in memory meanwhile (no exchange, no sort), so the new list's indices are right.
// A list is valid as long as no atom has moved further than half the skin since its snapshot. Every step measures this,
// and if the list expires before the next one is ready, the host waits: so no pair is ever missed. Atoms leave their
// bins, so bins and halo are wider by a margin. When half of that is used up, the host exchanges, sorts and makes a
// list itself.
//
// Each of several ranks has a coworker of its own. When one is lost, all ranks compute that step themselves and
// continue without: all ranks make the same decision, because they meet in the same exchanges.
#include <array>
#include <cmath>

#include "md/neighbours/displacement.h"
#include "md/offload/phase_model.h"
#include "md/simulation.h"
#include "md/stopwatch.h"

namespace md {
double Simulation::list_margin() const {
  return settings_.offload == Offload::list ? margin_in_skins * settings_.skin : 0;
}

void Simulation::lose_coworker(const CoworkerLost& error) {
  coworker_lost_ = error.what();
  coworker_.reset();
  list_requested_ = false;
}

bool Simulation::lost_on_any_rank() const {
  double any = coworker_ ? 0 : 1;
  ranks_.maximum({&any, 1});
  return any > 0;
}

void Simulation::go_on_without() {
  if (coworker_) coworker_lost_ = "another rank has lost its own";
  coworker_.reset();
  list_requested_ = false;
  settings_.offload = next_mode_ = Offload::none;
}

void Simulation::hand_over_positions() {
  handed_positions_.resize(values * atoms_.all());
  std::memcpy(handed_positions_.data(), atoms_.x.data(), values * atoms_.all() * sizeof(double));
}

void Simulation::step_with_forces_elsewhere() {
  refresh_ghosts();
  const std::size_t handed = atoms_.own;
  try {
    const Stopwatch watch(times_.force);
    // A copy, so that the host need not wait for the pull. For the same reason lists alternate between two places.
    hand_over_positions();
    if (coworker_)
      coworker_->begin_forces({settings_.epsilon, settings_.sigma, settings_.cut}, handed_positions_, handed);
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
  force_exchange_.note_places(ranks_, atoms_);  // the forces are still missing
  note_furthest();
  rebuild();
  take_forces(handed);
  half_kick_due_ = true;
  ++steps_done_;
}

// Forces of `handed` atoms, in their order before the lists were made.
void Simulation::take_forces(std::size_t handed) {
  PairSums sums;
  const double* f = nullptr;
  try {
    const Stopwatch watch(times_.force);
    if (coworker_) {
      coworker_->use_list(list_.blocks);
      list_lent_ = true;
      f = coworker_->take_forces(sums);
    }
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
  if (lost_on_any_rank()) {
    go_on_without();
    return compute_forces();
  }
  const Stopwatch watch(times_.force);
  force_exchange_.bring_home(f, handed_positions_.data(), handed, domain_, ranks_, atoms_);
  pair_sums_ = sums;
  sums_there_ = true;
  sums_wanted_ = false;
  ++forces_by_coworker_;
}

void Simulation::request_list() {
  try {
    keep_positions(atoms_, requested_positions_);
    requested_strayed_ = displacement();
    coworker_->begin_list(atoms_.x, atoms_.own, settings_.cut + settings_.skin, half_lists());
    list_requested_ = true;
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
}

void Simulation::adopt_list() {
  try {
    const PairList made = coworker_->take_list();
    for (NeighbourBlock& block : list_.blocks) {
      block.borrowed =
          PairList{block.first, block.last, made.begin + block.first, made.mutual + block.first, made.neighbours};
    }
    list_positions_.swap(requested_positions_);
    strayed_ = requested_strayed_;
    gone_ = furthest_since(atoms_, list_positions_);
    list_requested_ = false;
    ++lists_by_coworker_;
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
}

bool Simulation::lists_run_out(bool& ask) {
  const Stopwatch watch(times_.neighbour);
  // Ranks agree on what is due: the largest distance of all decides.
  double furthest = gone_;
  ranks_.maximum({&furthest, 1});
  const double allowed = settings_.skin / 2;
  try {
    if (list_requested_ && (furthest > allowed || coworker_->list_done())) adopt_list();
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
  std::array<double, 3> now{gone_, coworker_ ? 0.0 : 1.0, gone_ + strayed_};
  ranks_.maximum(now);
  if (now[1] > 0) {  // one rank lost its coworker: all continue without, and miss no pair either
    go_on_without();
    if (!chosen_later_) {
      settings_.trigger = Trigger::displacement;
      settings_.interval = 1;
    }
    make_grid(domain_.whole);
    return true;
  }
  ask = !list_requested_ && now[0] > list_requested_at * allowed;
  return now[0] > allowed || 2 * now[2] > margin_;
}

void Simulation::rebuild_for_lists_elsewhere() {
  try {
    if (list_requested_) (void)coworker_->take_list();  // its atoms' order ends here
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

// Between two modes: a step that always makes lists, with the bins and the halo that the next mode needs.
void Simulation::step_into_next_mode() {
  try {
    if (list_requested_) (void)coworker_->take_list();
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
  list_requested_ = false;
  drift();
  note_furthest();
  if (lost_on_any_rank()) go_on_without();
  settings_.offload = next_mode_;
  if (margin_ != list_margin()) make_grid(domain_.whole);
  rebuild();
  try {
    if (settings_.offload == Offload::list) coworker_->use_bins(*bins_, atoms_.own);
    if (settings_.offload == Offload::force) {
      coworker_->use_list(list_.blocks);
      list_lent_ = true;
    }
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
  compute_forces();
  half_kick_due_ = true;
  ++steps_done_;
}

void Simulation::begin_probe(Offload what) {
  probed_ = what;
  try {
    hand_over_positions();
    if (what == Offload::list) {
      coworker_->use_bins(*bins_, atoms_.own);
      coworker_->begin_list(handed_positions_, atoms_.own, settings_.cut + settings_.skin, half_lists());
    } else {
      coworker_->use_list(list_.blocks);
      list_lent_ = true;
      coworker_->begin_forces({settings_.epsilon, settings_.sigma, settings_.cut}, handed_positions_, atoms_.own);
    }
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
}

bool Simulation::probe_over(CoworkerTimes& times) {
  try {
    PairSums sums;
    if (probed_ == Offload::list) {
      if (!coworker_->list_done()) return false;
      (void)coworker_->take_list();
      times = coworker_->list_times();
    } else {
      if (!coworker_->forces_done()) return false;
      (void)coworker_->take_forces(sums);
      times = coworker_->force_times();
    }
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
    return false;
  }
  return true;
}

void Simulation::be_patient(double seconds) {
  if (coworker_) coworker_->be_patient(seconds);
}

double Simulation::fastest() const {
  double most = 0;
  for (std::size_t i = 0; i < atoms_.own; ++i) {
    const double* v = atoms_.v.data() + values * i;
    most = std::max(most, v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
  }
  return std::sqrt(most);
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
