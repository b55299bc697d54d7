// The face-centred cubic start of a simulation: four atoms a cell, the ids that seed their velocities.
#pragma once

#include <array>

#include "md/atoms.h"
#include "md/ranks/domain.h"

namespace md {

// The box of so many cells of a lattice with `density` atoms per unit of volume.
Box lattice_box(const std::array<int, 3>& cells, double density);

// Adds those atoms whose places lie in `domain.own`, in rows along x. On the grid of half cells (2nx, 2ny, 2nz) the
// place (i, j, k) is taken where i + j + k is even; its id is k (2ny) (2nx) + j (2nx) + i + 1.
void add_lattice(const std::array<int, 3>& cells, double density, std::int32_t seed, const Domain& domain,
                 Atoms& atoms);

}  // namespace md
