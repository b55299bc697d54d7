#include "md/velocities.h"

#include <cmath>

namespace md {

double ParkMiller::draw() {
  state_ = state_ * 16807 % 2147483647;
  return static_cast<double>(state_) * (1.0 / 2147483647);
}

std::array<double, 3> seeded_velocity(std::int32_t id, std::int32_t seed) {
  constexpr std::int64_t apart = 15'485'863, states = 2'147'483'646;  // seeds are a large prime apart
  ParkMiller generator((id - 1 + apart * seed) % states + 1);
  std::array<double, 3> velocity{};
  for (double& component : velocity) {
    for (int discarded = 0; discarded < 5; ++discarded) generator.draw();
    component = generator.draw();
  }
  return velocity;
}

void set_temperature(double temperature, std::span<const double> masses, const Units& units, std::int64_t atoms_in_all,
                     Atoms& atoms, Ranks& ranks) {
  const bool alike = masses.size() == 1;
  const auto weight_of = [&](std::size_t i) { return alike ? 1 : masses[atoms.type[i]]; };
  std::array<double, 4> drift{};  // and the weight of all atoms
  for (std::size_t i = 0; i < atoms.own; ++i) {
    for (std::size_t d = 0; d < 3; ++d) drift[d] += weight_of(i) * atoms.v[values * i + d];
    drift[3] += weight_of(i);
  }
  ranks.sum(drift);
  double squares = 0;
  for (std::size_t i = 0; i < atoms.own; ++i) {
    for (std::size_t d = 0; d < 3; ++d) {
      double& component = atoms.v[values * i + d];
      component -= drift[d] / drift[3];
      squares += weight_of(i) * component * component;
    }
  }
  ranks.sum({&squares, 1});
  const double energy_per_v2 = (alike ? masses[0] : 1) * units.mvv_to_energy / units.boltzmann;
  const double now = squares * energy_per_v2 / static_cast<double>(3 * atoms_in_all - 3);
  const double factor = now > 0 ? std::sqrt(temperature / now) : 0;
  for (double& component : atoms.v) component *= factor;
}

}  // namespace md
