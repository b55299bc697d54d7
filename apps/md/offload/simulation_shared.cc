// Steps whose forces host and coworker compute together (shared_forces.h): the coworker those of the last atoms, the
// host the others. The positions go there as soon as they are complete, in steps that make lists before the lists are
// made, and the host takes the forces when it has its own. It changes no position until then, so nothing is copied.
//
// A coworker that is lost in between leaves the host its part of the lists to make, from the positions of then, and its
// forces to compute: the result is the same. At the next lists all ranks continue without, because they agree on modes.
#include <algorithm>

#include "md/simulation.h"

namespace md {
namespace {

// A coworker counts as lost after so long. It may have to start workers first, and share its cores.
constexpr double share_patience_s = 10;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

double Simulation::share() const {
  if (settings_.offload != Offload::share || atoms_.own == 0) return 0;
  return static_cast<double>(atoms_.own - shared_from_) / static_cast<double>(atoms_.own);
}

// Atoms have been sorted. The coworker begins with their forces at once, for which it makes lists.
void Simulation::share_atoms() {
  shared_from_ = atoms_.own;
  share_begun_ = false;
  if (settings_.offload != Offload::share || !shares_ || !coworker_) return;
  shared_from_ = atoms_.own * (ShareBalance::units - balance_.next()) / ShareBalance::units;
  if (shared_from_ == atoms_.own) return;
  try {
    if (!chosen_later_) coworker_->be_patient(share_patience_s);
    coworker_->use_share(*bins_, {shared_from_, atoms_.own, settings_.cut + settings_.skin, half_lists()});
    begin_share();
  } catch (const CoworkerLost& error) {
    shared_from_ = atoms_.own;
    lose_coworker(error);
  }
}

void Simulation::begin_share() {
  if (share_begun_) return;
  share_begun_at_ = std::chrono::steady_clock::now();
  coworker_->begin_share({settings_.epsilon, settings_.sigma, settings_.cut}, atoms_.x, sums_wanted_);
  share_begun_ = true;
}

PairSums Simulation::compute_shared_forces() {
  try {
    begin_share();
    PairSums sums = forces_->compute(list_, *halo_, sums_wanted_, atoms_);
    take_share(sums);
    return sums;
  } catch (const CoworkerLost& error) {
    take_back_share(error);
    return forces_->compute(list_, *halo_, sums_wanted_, atoms_);
  }
}

// Adds the coworker's sums to those of the host's part.
void Simulation::take_share(PairSums& sums) {
  ShareBalance::Step step;
  step.own_s = seconds_since(share_begun_at_);
  PairSums theirs;
  step.waited = !coworker_->forces_done();
  const double* const f = coworker_->take_forces(theirs);
  step.there_s = seconds_since(share_begun_at_);
  std::copy_n(f, values * (atoms_.own - shared_from_), atoms_.f.data() + values * shared_from_);
  step.coworker = coworker_->force_times();
  share_begun_ = false;
  balance_.note(step);
  sums.energy += theirs.energy;
  sums.virial += theirs.virial;
  ++forces_by_coworker_;
}

void Simulation::take_back_share(const CoworkerLost& error) {
  lose_coworker(error);
  NeighbourList rest;
  build_blocks(*bins_, shared_from_, atoms_.own, settings_.cut + settings_.skin, half_lists(), settings_.agent_threads,
               kernels_, rest, settings_.precision);
  for (NeighbourBlock& block : rest.blocks) list_.blocks.push_back(std::move(block));
  shared_from_ = atoms_.own;
  share_begun_ = false;
}

}  // namespace md
