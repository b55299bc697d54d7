// Measures the phases of a simulation whose host computes alone.
#pragma once

#include <vector>

#include "md/offload/phase_model.h"
#include "md/simulation.h"

namespace md {

class PhaseMeter {
 public:
  explicit PhaseMeter(const Simulation& simulation) : simulation_(&simulation) { begin(); }

  void begin();
  // One step was done since `begin` or the last call.
  void note_step();
  [[nodiscard]] std::size_t plain_steps() const { return communicate_.size(); }
  [[nodiscard]] std::size_t rebuilds() const { return rebuild_.size(); }
  // Medians. 0 for phases that no step has shown.
  [[nodiscard]] HostPhases phases() const;

 private:
  const Simulation* simulation_;
  PhaseTimes before_;
  std::int64_t rebuilds_before_ = 0;
  std::vector<double> force_, integrate_, communicate_, rebuild_;
};

double median_of(std::vector<double> numbers);

}  // namespace md
