// What leaves the program: a snapshot of all atoms, in the order of their ids, at rank 0.
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
  std::array<double, 3> x{}, v{};
};

// Everybody calls it; rank 0 gets all, the others nothing.
std::vector<Particle> gather_particles(const Atoms& atoms, Ranks& ranks);

}  // namespace md
