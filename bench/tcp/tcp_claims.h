// Claims about TCP: costs of both sides from the same turns, shown as costs or as rates; and which claims a simulation
// decides.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "measure.h"
#include "report.h"

namespace offpath::bench {

[[nodiscard]] inline Claim cost_beside(std::string peer, std::string name, const Comparison& compared, double scale,
                                       std::string unit, std::optional<Target> target = {}) {
  return {.claim = std::move(name),
          .value = compared.subject * scale,
          .unit = std::move(unit),
          .peer = std::move(peer),
          .peer_value = compared.peer * scale,
          .ratio = compared.ratio,
          .interval = compared.interval,
          .pairs = compared.pairs,
          .target = target};
}

// If more is better, and the costs are inverses of the shown values.
[[nodiscard]] inline Claim rate_beside(std::string peer, std::string name, const Comparison& compared, double scale,
                                       std::string unit, std::optional<Target> target = {}) {
  Claim claim = cost_beside(std::move(peer), std::move(name), compared, 1, std::move(unit), target);
  claim.value = scale / compared.subject;
  claim.peer_value = scale / compared.peer;
  return claim;
}

// How far a simulation is from what was measured of the same: a factor of at least 1.
struct SimulationMiss {
  double factor;
  std::string_view what;
};
inline constexpr double simulation_miss_most = 1.2;

// Why a simulated ratio does not decide whether its target is met, by the worst of the simulations that can be checked;
// empty: it decides.
[[nodiscard]] inline std::string why_undecided(double ratio, double target, const std::vector<SimulationMiss>& misses) {
  const SimulationMiss worst = *std::ranges::max_element(misses, {}, &SimulationMiss::factor);
  const double percent = (worst.factor - 1) * 100;
  if (worst.factor > simulation_miss_most)
    return fmt::format("the simulation of two cores, {}, misses what was measured by {:.0f} %, more than {:.0f} %",
                       worst.what, percent, (simulation_miss_most - 1) * 100);
  if (either_way(ratio / target) < worst.factor)
    return fmt::format(
        "the ratio is closer to its target than the {:.0f} % by which the simulation of two cores, {}, "
        "misses what was measured",
        percent, worst.what);
  return {};
}

}  // namespace offpath::bench
