#include "md/thermo.h"

#include <array>
#include <cinttypes>
#include <cstdio>

namespace md {

double twice_kinetic(const Atoms& atoms, std::span<const double> masses, const Units& units) {
  double sum = 0;
  if (masses.size() == 1) {
    for (std::size_t n = 0; n < values * atoms.own; ++n) sum += atoms.v[n] * atoms.v[n];
    return sum * masses[0] * units.mvv_to_energy;
  }
  for (std::size_t i = 0; i < atoms.own; ++i) {
    const double* v = atoms.v.data() + values * i;
    sum += masses[atoms.type[i]] * (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
  }
  return sum * units.mvv_to_energy;
}

Thermo measure(double own_twice_kinetic, const PairSums& own_pairs, const Units& units, double volume,
               std::int64_t atoms_in_all, Ranks& ranks) {
  std::array<double, 3> sums{own_twice_kinetic, own_pairs.energy, own_pairs.virial};
  ranks.sum(sums);
  const auto count = static_cast<double>(atoms_in_all);
  Thermo thermo;
  thermo.kinetic = sums[0] / 2 / count;
  thermo.temperature = sums[0] / ((3 * count - 3) * units.boltzmann);
  thermo.energy = sums[1] / count;
  thermo.pressure = (sums[0] + sums[2]) / (3 * volume) * units.to_pressure;
  return thermo;
}

std::string row_of(std::int64_t step, const Thermo& thermo, double seconds) {
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(), "%" PRId64 " %.6e %.6e %.6e %.3f", step, thermo.temperature, thermo.energy,
                thermo.pressure, seconds);
  return text.data();
}

}  // namespace md
