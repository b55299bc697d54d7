#include "md/lattice.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "md/files/bad_input.h"
#include "md/velocities.h"

namespace md {
namespace {

double cell_length(double density) { return std::cbrt(4.0 / density); }

// The first half cell that may lie in [low, high), and one past the last.
std::array<int, 2> half_cells(double low, double high, double half, int cells) {
  return {std::max(0, static_cast<int>(low / half) - 1), std::min(2 * cells, static_cast<int>(high / half) + 2)};
}

}  // namespace

Box lattice_box(const std::array<int, 3>& cells, double density) {
  const double length = cell_length(density);
  Box box;
  for (int d = 0; d < 3; ++d) box.high[d] = cells[d] * length;
  return box;
}

void add_lattice(const std::array<int, 3>& cells, double density, std::int32_t seed, const Domain& domain,
                 Atoms& atoms) {
  const double places = 8.0 * cells[0] * cells[1] * cells[2];
  if (places > 2147483646.0) {
    throw BadInput("a lattice of " + std::to_string(places / 2) +
                   " atoms: their ids have 32 bits, which limits them to half of 2147483646");
  }
  const double half = 0.5 * cell_length(density);
  std::array<std::array<int, 2>, 3> range{};
  for (int d = 0; d < 3; ++d) range[d] = half_cells(domain.own.low[d], domain.own.high[d], half, cells[d]);
  for (int k = range[2][0]; k < range[2][1]; ++k) {
    for (int j = range[1][0]; j < range[1][1]; ++j) {
      for (int i = range[0][0]; i < range[0][1]; ++i) {
        if ((i + j + k) % 2 != 0) continue;
        const std::array<double, 3> position{half * i, half * j, half * k};
        bool ours = true;
        for (int d = 0; d < 3; ++d) ours = ours && position[d] >= domain.own.low[d] && position[d] < domain.own.high[d];
        if (!ours) continue;
        const int id = (k * (2 * cells[1]) + j) * (2 * cells[0]) + i + 1;
        const std::array<double, 3> velocity = seeded_velocity(id, seed);
        atoms.add(id, 0, position.data(), velocity.data());
      }
    }
  }
}

}  // namespace md
