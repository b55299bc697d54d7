// Velocities that depend only on an atom's id, so that they do not depend on the division of the box.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "md/atoms.h"
#include "md/ranks/ranks.h"
#include "md/units.h"

namespace md {

// Park and Miller's minimal standard generator (Comm. ACM 31, 1192 (1988)): 16807 s mod (2^31 - 1), as a fraction.
class ParkMiller {
 public:
  explicit ParkMiller(std::int64_t seed) : state_(seed) {}
  double draw();

 private:
  std::int64_t state_;
};

// Three components in (0, 1), with five draws discarded before each, because first draws of neighbouring seeds are
// correlated. miniMD uses `seed` 0.
std::array<double, 3> seeded_velocity(std::int32_t id, std::int32_t seed);

// Removes the drift of the centre of mass, then scales to `temperature`. `masses`: one, or one for each type of atoms.
void set_temperature(double temperature, std::span<const double> masses, const Units& units, std::int64_t atoms_in_all,
                     Atoms& atoms, Ranks& ranks);

}  // namespace md
