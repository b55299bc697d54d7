#include "md/thermostat.h"

#include <cmath>

namespace md {

Thermostat::Thermostat(double energy, double freedom, double damping, double time_step)
    : energy_(energy), freedom_(freedom), time_step_(time_step) {
  masses_.fill(energy * damping * damping);
  masses_[0] *= freedom;
}

// A quarter of a step of one link, between two eighths of the friction that the next link exerts.
void Thermostat::push(std::size_t link, double twice_kinetic) {
  const double next = link + 1 < links ? rates_[link + 1] : 0;
  const double friction = std::exp(-time_step_ / 8 * next);
  const double excess = link == 0 ? twice_kinetic - freedom_ * energy_
                                  : masses_[link - 1] * rates_[link - 1] * rates_[link - 1] - energy_;
  rates_[link] = (rates_[link] * friction + excess / masses_[link] * time_step_ / 4) * friction;
}

double Thermostat::half_step(double& twice_kinetic) {
  for (std::size_t link = links; link-- > 0;) push(link, twice_kinetic);
  const double factor = std::exp(-time_step_ / 2 * rates_[0]);
  twice_kinetic *= factor * factor;
  for (std::size_t link = 0; link < links; ++link) push(link, twice_kinetic);
  return factor;
}

}  // namespace md
