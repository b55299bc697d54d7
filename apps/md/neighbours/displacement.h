// Distances that atoms have moved, which decide how long a list is valid.
#pragma once

#include "md/atoms.h"

namespace md {

// Copies the current x of all own atoms.
void keep_positions(const Atoms& atoms, Array<double>& kept);

// The largest distance that an own atom has moved since. Infinite if a position is not a number.
double furthest_since(const Atoms& atoms, const Array<double>& kept);
// The square of it, for the atoms [first, last).
double furthest_squared(const Atoms& atoms, const Array<double>& kept, std::size_t first, std::size_t last);

}  // namespace md
