// The units of an input's numbers. The constants are those that LAMMPS prints for its unit styles.
#pragma once

namespace md {

struct Units {
  double boltzmann = 1;      // energy per temperature
  double mvv_to_energy = 1;  // mass velocity^2
  double to_pressure = 1;    // energy per volume
};

inline constexpr Units lj_units{};                                           // reduced
inline constexpr Units metal_units{8.617343e-5, 1.0364269e-4, 1.6021765e6};  // eV, Angstrom, ps, g/mol, bar, K

}  // namespace md
