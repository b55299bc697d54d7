#include "md/thermo.h"

#include <array>
#include <cinttypes>
#include <cstdio>

namespace md {

Thermo measure(const Atoms& atoms, const PairSums& own_pairs, double mass, const Units& units, double volume,
               std::int64_t atoms_in_all, Ranks& ranks) {
  double squares = 0;
  for (std::size_t n = 0; n < values * atoms.own; ++n) squares += atoms.v[n] * atoms.v[n];
  std::array<double, 3> sums{squares, own_pairs.energy, own_pairs.virial};
  ranks.sum(sums);
  const auto count = static_cast<double>(atoms_in_all);
  const double twice_kinetic = sums[0] * mass * units.mvv_to_energy;
  Thermo thermo;
  thermo.kinetic = twice_kinetic / 2 / count;
  thermo.temperature = twice_kinetic / ((3 * count - 3) * units.boltzmann);
  thermo.energy = sums[1] / count;
  thermo.pressure = (twice_kinetic + sums[2]) / (3 * volume) * units.to_pressure;
  return thermo;
}

std::string row_of(std::int64_t step, const Thermo& thermo, double seconds) {
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(), "%" PRId64 " %.6e %.6e %.6e %.3f", step, thermo.temperature, thermo.energy,
                thermo.pressure, seconds);
  return text.data();
}

}  // namespace md
