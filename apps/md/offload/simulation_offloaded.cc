// Steps in which a coworker takes part.
//
// Forces elsewhere (the paper's mode): in a step that makes new lists, the coworker computes forces with the old ones,
// while the host exchanges, sorts and makes the new ones. Then the forces are put into the new order, and forces of
// atoms that left are sent after them. The old list is used for one step longer.
//
// Positions of ghosts and forces of atoms that left cross between the hosts, before and after that, or between the
// coworkers (`--exchange agent`, exchanged_forces.h): then the host hands over its own atoms' positions, and their new
// places as soon as it has sorted them. Both ways give the same bits.
//
// Lists elsewhere: the coworker makes the next list from a snapshot of positions while the host continues with the
// current one. Atoms keep their places in memory meanwhile (no exchange, no sort), so the new list's indices are right.
// A list is valid as long as no atom has moved further than half the skin since its snapshot. Every step measures this,
// and if the list expires before the next one is ready, the host waits: so no pair is ever missed. Atoms leave their
// bins, so bins and halo are wider by a margin. Shortly before half of that is used up, no list is requested any more;
// when the current one expires, the host exchanges, sorts and makes a list itself.
//
// Several ranks request lists in the same step and adopt them in the same step, because each measures its own atoms
// only: with snapshots of different steps the way of a ghost would be unknown. They agree by a maximum over all ranks
// that is begun in one step and read in the next, so no step waits for it. Where twice the longest way of an atom in
// one step would bring it to the limit, and when lists are adopted, they wait for the maximum of this very step. An
// atom faster than that is found by its own rank, counted, and reported at the end (steps_too_late).
//
// Each of several ranks has a coworker of its own. When one is lost, all ranks compute that step themselves and
// continue without: all ranks make the same decision, because they meet in the same exchanges.
#include <algorithm>
#include <array>
#include <cmath>

#include "md/files/bad_input.h"
#include "md/neighbours/displacement.h"
#include "md/offload/phase_model.h"
#include "md/simulation.h"
#include "md/stopwatch.h"

namespace md {
namespace {

// The maxima over all ranks: an atom's distance from its place in the list, its way in the last step, and its distance
// from its bin; whether a coworker is lost; whether a list is not ready (1) or did not fit (2).
enum Guarded : std::size_t { gone, step_length, strayed, lost, unready };
constexpr double faster_at_most = 2;  // in one step, than the fastest atom of the step before

}  // namespace

double Simulation::list_margin() const {
  return settings_.offload == Offload::list ? margin_in_skins * settings_.skin : 0;
}

void Simulation::lose_coworker(const CoworkerLost& error) {
  coworker_lost_ = error.what();
  lost_coworker_ = std::move(coworker_);
  if (coworkers_meet_) lost_coworker_->leave();
}

bool Simulation::lost_on_any_rank() const {
  double any = coworker_ ? 0 : 1;
  ranks_.maximum({&any, 1});
  return any > 0;
}

void Simulation::go_on_without() {
  if (coworker_) lose_coworker(CoworkerLost("another rank has lost its own"));
  list_requested_ = false;
  end_agreement();
  settings_.offload = next_mode_ = Offload::none;
}

// With --offload auto when forces elsewhere are tried first.
void Simulation::meet_coworkers() {
  meeting_tried_ = true;
  const std::string why = coworker_ ? coworker_->meet() : "there is no agent";
  double apart = why.empty() ? 0 : 1;
  ranks_.maximum({&apart, 1});
  coworkers_meet_ = apart == 0;
  if (!coworkers_meet_) coworkers_apart_ = why.empty() ? "another rank's agent does not reach the others" : why;
  if (settings_.exchange != Exchange::agent) return;
  if (coworkers_meet_) {
    exchange_ = Exchange::agent;
  } else if (!chosen_later_) {
    throw BadInput(
        "--exchange agent: ranks need one agent, or agents of one group, and each agent as many workers of the plug-in "
        "as it has ranks of the run (plugin.workers): " +
        coworkers_apart_);
  }
}

void Simulation::lend_list() {
  coworker_->use_list(list_.blocks, coworkers_meet_ ? &halo_->swaps() : nullptr);
  list_lent_ = true;
}

void Simulation::hand_over_positions(std::size_t atoms) {
  handed_positions_.resize(values * atoms);
  std::memcpy(handed_positions_.data(), atoms_.x.data(), values * atoms * sizeof(double));
}

void Simulation::begin_forces_elsewhere() {
  const Stopwatch watch(times_.force);
  const LennardJones potential{settings_.epsilon, settings_.sigma, settings_.cut};
  // A copy, so that the host need not wait for the pull. For the same reason lists alternate between two places.
  hand_over_positions(coworkers_exchange_ ? atoms_.own : atoms_.all());
  if (!coworker_) return;
  try {
    if (coworkers_exchange_)
      coworker_->begin_exchanged_forces(potential, tables_, handed_positions_, atoms_.all(), domain_);
    else
      coworker_->begin_forces(potential, handed_positions_, atoms_.own);
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
}

// The atoms have been sorted.
void Simulation::order_forces() {
  read_places(atoms_, places_);
  if (!coworker_) return;
  try {
    coworker_->order_forces({places_.data(), places_.size()});
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
}

void Simulation::step_with_forces_elsewhere() {
  const PhaseTimes before = times_;
  coworkers_exchange_ = exchange_ == Exchange::agent;
  if (!coworkers_exchange_) refresh_ghosts();
  force_steps_.halo += times_.communicate - before.communicate;
  const std::size_t handed = atoms_.own;
  begin_forces_elsewhere();
  note_places(ranks_.rank(), atoms_);  // the forces are still missing
  note_furthest();
  rebuild();
  take_forces(handed);
  coworkers_exchange_ = false;
  note_force_step(before);
  half_kick_due_ = true;
  ++steps_done_;
}

void Simulation::note_force_step(const PhaseTimes& before) {
  if (!coworker_) return;
  ++force_steps_.count;
  for (const auto phase : {&PhaseTimes::force, &PhaseTimes::neighbour, &PhaseTimes::sort, &PhaseTimes::communicate})
    force_steps_.host.*phase += times_.*phase - before.*phase;
  try {
    const CoworkerTimes times = coworker_->force_times();
    force_steps_.coworker.moved_s += times.moved_s;
    force_steps_.coworker.computed_s += times.computed_s;
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
}

// Forces of `handed` atoms, in their order before the lists were made.
void Simulation::take_forces(std::size_t handed) {
  PairSums sums;
  const double* f = nullptr;
  try {
    const Stopwatch watch(times_.force);
    if (coworker_) {
      lend_list();
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
  if (coworkers_exchange_) {
    std::copy_n(f, values * atoms_.own, atoms_.f.data());
  } else {
    force_exchange_.send_after(f, handed_positions_.data(), handed, domain_, ranks_);
    force_exchange_.put_in_order(f, handed, ranks_.rank(), atoms_);
  }
  pair_sums_ = sums;
  sums_there_ = true;
  sums_wanted_ = false;
  ++forces_by_coworker_;
}

void Simulation::request_list() {
  list_requested_ = true;
  if (!coworker_) return;
  try {
    keep_positions(atoms_, requested_positions_);
    requested_strayed_ = displacement();
    coworker_->begin_list(atoms_.x, atoms_.own, settings_.cut + settings_.skin, half_lists());
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
}

void Simulation::adopt_list() {
  list_requested_ = false;
  if (!coworker_) return;
  try {
    const std::optional<PairList> made = coworker_->take_list();
    list_too_large_ = !made;
    if (!made) return;
    for (NeighbourBlock& block : list_.blocks) {
      block.borrowed =
          PairList{block.first, block.last, made->begin + block.first, made->mutual + block.first, made->neighbours};
    }
    list_positions_.swap(requested_positions_);
    strayed_ = requested_strayed_;
    moved_.since = furthest_since(atoms_, list_positions_);
    ++lists_by_coworker_;
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
}

// `asks`: a list is about to be requested.
std::array<double, 5> Simulation::guarded_now(bool asks) {
  bool not_ready = asks;
  try {
    not_ready = not_ready || (list_requested_ && coworker_ && !coworker_->list_done());
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
  return {moved_.since, moved_.step, moved_.since + strayed_, coworker_ ? 0.0 : 1.0,
          list_too_large_ ? 2.0
          : not_ready     ? 1.0
                          : 0.0};
}

void Simulation::agree_now() {
  agreed_ = guarded_now(false);
  ranks_.maximum(agreed_);
}

void Simulation::end_agreement() {
  if (agreement_pending_) ranks_.finish_maximum(agreed_);
  agreement_pending_ = false;
}

bool Simulation::lists_run_out(bool& ask) {
  const Stopwatch watch(times_.neighbour);
  const double allowed = settings_.skin / 2;
  const bool known = agreement_pending_;  // of the step before
  end_agreement();
  const double ahead = faster_at_most * agreed_[step_length];
  const bool near = agreed_[gone] + ahead > allowed || 2 * (agreed_[strayed] + ahead) > margin_ || agreed_[lost] > 0;
  if (!known || near) agree_now();
  if (list_requested_ && (agreed_[gone] > allowed || agreed_[unready] == 0)) {
    adopt_list();
    agree_now();
  }
  if (agreed_[lost] > 0) {  // one rank lost its coworker: all continue without, and still miss no pair
    go_on_without();
    if (!chosen_later_) {
      settings_.trigger = Trigger::displacement;
      settings_.interval = 1;
    }
    make_grid(domain_.whole);
    return true;
  }
  // A list that is requested now serves until atoms have gone `allowed` from here. If they would leave their bins
  // earlier, it would be waited for and discarded.
  const bool serves = 2 * (agreed_[strayed] + allowed) <= margin_;
  ask = !list_requested_ && serves && agreed_[gone] > list_requested_at * allowed;
  if (agreed_[gone] > allowed || 2 * agreed_[strayed] > margin_ || agreed_[unready] > 1) return true;
  if (moved_.since > allowed || 2 * (moved_.since + strayed_) > margin_) ++steps_too_late_;
  if (ranks_.count() > 1) {
    ranks_.begin_maximum(guarded_now(ask));
    agreement_pending_ = true;
  }
  return false;
}

void Simulation::use_bins_elsewhere() {
  std::size_t neighbours = 0;
  for (const NeighbourBlock& block : list_.blocks) neighbours += block.view().begin[block.last - block.first];
  coworker_->use_bins(*bins_, atoms_.own, neighbours);
}

void Simulation::rebuild_for_lists_elsewhere() {
  try {
    if (list_requested_ && coworker_) (void)coworker_->take_list();  // its atoms' order ends here
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
  list_requested_ = list_too_large_ = false;
  rebuild();
  try {
    if (coworker_) use_bins_elsewhere();
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
}

// Between two modes: a step that always makes lists, with the bins and the halo that the next mode needs.
void Simulation::step_into_next_mode() {
  try {
    if (list_requested_ && coworker_) (void)coworker_->take_list();
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
  list_requested_ = list_too_large_ = false;
  end_agreement();
  drift();
  note_furthest();
  if (lost_on_any_rank()) go_on_without();
  settings_.offload = next_mode_;
  if (margin_ != list_margin()) make_grid(domain_.whole);
  rebuild();
  if (settings_.offload == Offload::force && settings_.exchange != Exchange::host && !meeting_tried_) meet_coworkers();
  try {
    if (settings_.offload == Offload::list) use_bins_elsewhere();
    if (settings_.offload == Offload::force && coworker_) lend_list();
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
    hand_over_positions(atoms_.all());
    if (what == Offload::list) {
      use_bins_elsewhere();
      coworker_->begin_list(handed_positions_, atoms_.own, settings_.cut + settings_.skin, half_lists());
    } else {
      lend_list();
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
    if (list_requested_ && coworker_) coworker_->wait_pulled();
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
