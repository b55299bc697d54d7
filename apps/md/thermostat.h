// A chain of three Nose-Hoover thermostats, which makes the run one of constant temperature (NVT): G. J. Martyna, M. L.
// Klein, M. Tuckerman, J. Chem. Phys. 97, 2635 (1992), with the update of G. J. Martyna et al., Mol. Phys. 87, 1117
// (1996). The velocities are scaled at the beginning and at the end of a step of velocity Verlet.
#pragma once

#include <array>
#include <cstddef>

namespace md {

class Thermostat {
 public:
  static constexpr std::size_t links = 3;
  using Rates = std::array<double, links>;

  // `energy`: Boltzmann's constant times the temperature; `freedom`: degrees of freedom; `damping`: the period over
  // which a difference in temperature is levelled.
  Thermostat(double energy, double freedom, double damping, double time_step);

  // Half a step of the chain. `twice_kinetic`: sum of m v^2 as an energy, before and after. Returns the factor for all
  // velocities.
  double half_step(double& twice_kinetic);

  // The chain's state: per unit of time.
  [[nodiscard]] const Rates& rates() const { return rates_; }
  void set_rates(const Rates& rates) { rates_ = rates; }

 private:
  void push(std::size_t link, double twice_kinetic);

  double energy_, freedom_, time_step_;
  Rates masses_{}, rates_{};
};

}  // namespace md
