#include "md/ranks/domain.h"

#include <limits>

namespace md {
namespace {

int rank_at(const std::array<int, 3>& grid, const std::array<int, 3>& place) {
  return place[0] + grid[0] * (place[1] + grid[1] * place[2]);
}

std::array<int, 3> choose_grid(const Box& whole, int ranks) {
  std::array<int, 3> best{1, 1, ranks};
  double best_surface = std::numeric_limits<double>::infinity();
  for (int x = 1; x <= ranks; ++x) {
    if (ranks % x != 0) continue;
    for (int y = 1; y <= ranks / x; ++y) {
      if (ranks / x % y != 0) continue;
      const int z = ranks / x / y;
      const double a = whole.length(0) / x, b = whole.length(1) / y, c = whole.length(2) / z;
      const double surface = a * b + b * c + a * c;
      if (surface < best_surface * (1 - 1e-12)) {
        best = {x, y, z};
        best_surface = surface;
      }
    }
  }
  return best;
}

}  // namespace

int Domain::neighbour(int d, int side) const {
  std::array<int, 3> there = place;
  there[d] = (there[d] + side + grid[d]) % grid[d];
  return rank_at(grid, there);
}

double Domain::shift(int d, int side) const {
  if (side < 0 && place[d] == 0) return whole.length(d);
  if (side > 0 && place[d] == grid[d] - 1) return -whole.length(d);
  return 0;
}

Domain make_domain(const Box& whole, int ranks, int rank) {
  Domain domain;
  domain.whole = whole;
  domain.grid = choose_grid(whole, ranks);
  domain.place = {rank % domain.grid[0], rank / domain.grid[0] % domain.grid[1],
                  rank / domain.grid[0] / domain.grid[1]};
  for (int d = 0; d < 3; ++d) {
    const double length = whole.length(d);
    const int parts = domain.grid[d], part = domain.place[d];
    domain.own.low[d] = whole.low[d] + length * part / parts;
    domain.own.high[d] = part + 1 == parts ? whole.high[d] : whole.low[d] + length * (part + 1) / parts;
  }
  return domain;
}

}  // namespace md
