// A coworker for tests: does its tasks in this process, and dies after a given number of answers.
#pragma once

#include <memory>

#include "md/offload/local_coworker.h"

namespace md {

// Belongs to the test, because a lost coworker is destroyed.
struct CoworkerLife {
  int answers_left = 0;
  double patience_s = 0;    // as last set by the simulation
  int lists_too_large = 0;  // so many lists do not fit into their room
};

class MortalCoworker : public Coworker {
 public:
  explicit MortalCoworker(CoworkerLife& life) : life_(life) {}
  void use_bins(const Bins& bins, std::size_t own, std::size_t neighbours) override {
    living_->use_bins(bins, own, neighbours);
  }
  void begin_list(const Array<double>& x, std::size_t own, double cut, bool half) override {
    living_->begin_list(x, own, cut, half);
  }
  bool list_done() override { return living_->list_done(); }
  std::optional<PairList> take_list() override {
    answer();
    std::optional<PairList> made = living_->take_list();
    if (life_.lists_too_large > 0) {
      --life_.lists_too_large;
      made.reset();
    }
    return made;
  }
  void use_list(std::span<const NeighbourBlock> list) override { living_->use_list(list); }
  void begin_forces(const LennardJones& potential, const Array<double>& x, std::size_t own) override {
    living_->begin_forces(potential, x, own);
  }
  bool forces_done() override { return living_->forces_done(); }
  const double* take_forces(PairSums& sums) override {
    answer();
    return living_->take_forces(sums);
  }
  void wait_pulled() override {}
  CoworkerTimes list_times() override { return {}; }  // less than any host's, so that each mode is predicted to be
                                                      // faster
  CoworkerTimes force_times() override { return {}; }
  void be_patient(double seconds) override { life_.patience_s = seconds; }

 private:
  void answer() {
    if (life_.answers_left-- <= 0) throw CoworkerLost("it has died");
  }
  CoworkerLife& life_;
  std::unique_ptr<Coworker> living_ = make_local_coworker();
};

}  // namespace md
