// Velocity Verlet: v += dt/2m f; x += dt v; (forces); v += dt/2m f. The last half kick of a step and the first one of
// the next are two additions in one pass over memory, which gives the same bits as two passes.
#pragma once

#include <span>

#include "md/atoms.h"

namespace md {

// `half_step_per_mass` has one entry, or one for each type of atoms.
void kick(std::span<const double> half_step_per_mass, int threads, Atoms& atoms);

// The largest of the own atoms: the distance from earlier positions, and that of this drift alone. Infinite if a
// position is not a number.
struct Motion {
  double since = 0, step = 0;
};
// With `since`, returns the motion from there, measured while the positions are in cache.
Motion kick_drift(std::span<const double> half_step_per_mass, double step, bool kick_twice, int threads, Atoms& atoms,
                  const Array<double>* since = nullptr);

// Multiplies all velocities.
void scale_velocities(double factor, int threads, Atoms& atoms);

}  // namespace md
