// `--offload auto`: finds the fastest mode during the run.
//
//   probing   the host continues alone, and its phases are measured; meanwhile the agent twice computes an unused list
//             and, where forces are a candidate, unused forces (the first time touches memory). The host never waits,
//             so an agent that does not answer costs nothing
//   measuring the host alone once more, while the agent is idle; skipped if the case is clear already
//   trying    modes that phase_model.h predicts to be faster are tried, the best first, each for some steps; only if
//             that would win more in the steps that are left than a failed trial loses. A trial ends as soon as it has
//             lost the time of a few steps; one that is too close to call takes longer. With lists elsewhere, steps
//             that sort atoms are rare: trials leave them out, and their predicted time is added
//   settled   the fastest tried mode if it was faster than the host alone, else none. Modes predicted to be clearly
//             slower than a tried mode are not tried
//   doubting  a mode that was slower than the host alone twice in a row is compared with the current speed of the host
//             alone: the slower one is given up for good
//
// With lists by interval all modes are candidates. With lists by displacement no pair may be missed, so `force` is
// excluded. Time is an argument. All ranks decide alike.
#pragma once

#include <string>
#include <vector>

#include "md/offload/phase_meter.h"

namespace md {

class AutoOffload {
 public:
  AutoOffload(Simulation& simulation, Ranks& ranks);

  // Called after every step, with its duration in seconds.
  void step_done(double seconds);

  // Whether the mode is chosen, and not in doubt.
  [[nodiscard]] bool settled() const { return stage_ == Stage::settled; }

  // A text with the results so far, for the end of the run.
  [[nodiscard]] std::string verdict() const;

 private:
  struct Candidate {
    Offload mode;
    double predicted;  // seconds per step
  };
  void probe();
  void measure(double seconds);
  void predict();
  void choose();
  void try_next();
  void judge_trial(double seconds);
  void settle();
  void watch_over(double seconds);
  void doubt(double seconds);
  [[nodiscard]] bool host_seen(std::size_t rebuilds, std::size_t plain, double seconds) const;
  [[nodiscard]] double interval_seen() const;
  // Why forces elsewhere are not a candidate; empty if they are.
  [[nodiscard]] std::string why_no_forces() const;
  [[nodiscard]] bool may_offload_forces() const { return why_no_forces().empty(); }
  [[nodiscard]] Offload next_probe() const;
  [[nodiscard]] bool on_any_rank(bool here) const;

  Simulation& simulation_;
  Ranks& ranks_;
  PhaseMeter meter_;
  enum class Stage { probing, measuring, trying, settled, doubting } stage_ = Stage::probing;
  int probes_done_ = 0;
  bool probe_there_ = false;
  AgentPhases agent_;
  double alone_ = 0;                   // a step of the host alone
  std::vector<Candidate> candidates_;  // the best last
  Offload best_ = Offload::none;       // of the tried modes
  double best_s_ = 0;
  std::int64_t steps_ = 0, rebuilds_first_ = 0, steps_warm_ = 0, trial_unit_ = 1;
  std::int64_t counted_ = 0, rebuilds_before_ = 0;  // steps of the trial that count; all rebuilds up to the previous
                                                    // step
  double lost_ = 0;                                 // seconds by which the trial is slower than the host alone
  double switched_ = 0;                             // seconds of the steps into a mode and back
  double sorts_ = 0;                                // predicted seconds per step that lists elsewhere spend on sorting
  double slow_s_ = 0;                               // of the mode in doubt
  double seconds_ = 0;
  int slow_windows_ = 0;
  std::string found_;
};

}  // namespace md
