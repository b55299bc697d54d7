// The initial face-centred cubic lattice: four atoms in each cell, with the ids that seed their velocities.
#pragma once

#include <array>

#include "md/atoms.h"
#include "md/ranks/domain.h"

namespace md {

// The box of a lattice with that many cells and `density` atoms per unit of volume.
Box lattice_box(const std::array<int, 3>& cells, double density);

// Adds the atoms that lie in `domain.own`, in rows along x. On the grid of half cells (2nx, 2ny, 2nz) the place (i, j,
// k) is occupied if i + j + k is even; its id is k (2ny) (2nx) + j (2nx) + i + 1.
void add_lattice(const std::array<int, 3>& cells, double density, std::int32_t seed, const Domain& domain,
                 Atoms& atoms);

}  // namespace md
