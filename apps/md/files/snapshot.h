// A snapshot of all atoms, ordered by id, on rank 0: for output.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "md/atoms.h"
#include "md/ranks/ranks.h"

namespace md {

struct Particle {
  std::int32_t id = 0;
  std::int32_t type = 0;  // from 0
  std::array<double, 3> x{}, v{}, f{};
};

// Called by all ranks; rank 0 gets all particles, the others none.
std::vector<Particle> gather_particles(const Atoms& atoms, Ranks& ranks);

}  // namespace md
