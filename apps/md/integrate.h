// Velocity Verlet: v += dt/2m f; x += dt v; (forces); v += dt/2m f. The last half kick of a step and the first one of
// the next are two additions in one pass over memory, which gives the same bits as two passes.
#pragma once

#include "md/atoms.h"

namespace md {

void kick(double half_step_per_mass, int threads, Atoms& atoms);
// With `since`, returns the largest distance of an own atom from there, like furthest_since, while the positions are in
// cache.
double kick_drift(double half_step_per_mass, double step, bool kick_twice, int threads, Atoms& atoms,
                  const Array<double>* since = nullptr);

}  // namespace md
