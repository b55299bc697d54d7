// How far atoms have gone: what decides for how long a list holds.
#pragma once

#include "md/atoms.h"

namespace md {

// x of all own atoms, as it is now.
void keep_positions(const Atoms& atoms, Array<double>& kept);

// The furthest that any own atom went since. Infinite where a position is not a number.
double furthest_since(const Atoms& atoms, const Array<double>& kept);
// The square of it, of the atoms [first, last).
double furthest_squared(const Atoms& atoms, const Array<double>& kept, std::size_t first, std::size_t last);

}  // namespace md
