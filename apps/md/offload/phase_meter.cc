#include "md/offload/phase_meter.h"

#include <algorithm>

namespace md {

void PhaseMeter::begin() {
  before_ = simulation_->times();
  rebuilds_before_ = simulation_->rebuilds();
}

void PhaseMeter::note_step() {
  const PhaseTimes& now = simulation_->times();
  const double lists =
      now.neighbour - before_.neighbour + now.sort - before_.sort + now.communicate - before_.communicate;
  force_.push_back(now.force - before_.force);
  integrate_.push_back(now.integrate - before_.integrate);
  (simulation_->rebuilds() > rebuilds_before_ ? rebuild_ : communicate_).push_back(lists);
  begin();
}

HostPhases PhaseMeter::phases() const {
  HostPhases phases;
  phases.force = median_of(force_);
  phases.integrate = median_of(integrate_);
  phases.communicate = median_of(communicate_);
  phases.rebuild = median_of(rebuild_);
  return phases;
}

double median_of(std::vector<double> numbers) {
  if (numbers.empty()) return 0;
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

}  // namespace md
