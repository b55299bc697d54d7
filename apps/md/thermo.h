// Temperature, potential energy per atom and pressure of all atoms, and their output row.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "md/atoms.h"
#include "md/kernels/kernels.h"
#include "md/ranks/ranks.h"
#include "md/units.h"

namespace md {

struct Thermo {
  double temperature = 0, energy = 0, pressure = 0;
  double kinetic = 0;  // energy per atom
};

// This rank's sum of m v^2, as an energy. `masses`: one, or one for each type of atoms.
double twice_kinetic(const Atoms& atoms, std::span<const double> masses, const Units& units);

// `own_twice_kinetic` and `own_pairs` are this rank's.
Thermo measure(double own_twice_kinetic, const PairSums& own_pairs, const Units& units, double volume,
               std::int64_t atoms_in_all, Ranks& ranks);

// "step T U P time", seven significant digits.
std::string row_of(std::int64_t step, const Thermo& thermo, double seconds);

}  // namespace md
