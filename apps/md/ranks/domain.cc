#include "md/ranks/domain.h"

#include <algorithm>
#include <cmath>
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

double edge(const Box& whole, int d, int part, int parts) { return whole.low[d] + whole.length(d) * part / parts; }

}  // namespace

double Box::wrapped(std::size_t d, double x) const {
  const double along = length(static_cast<int>(d)), inside = x - std::floor((x - low[d]) / along) * along;
  return inside < high[d] && inside >= low[d] ? inside : low[d];
}

RankOfPosition::RankOfPosition(const Box& whole, int ranks) : grid_(choose_grid(whole, ranks)) {
  for (int d = 0; d < 3; ++d) {
    for (int part = 0; part < grid_[d]; ++part) low_[d].push_back(edge(whole, d, part, grid_[d]));
  }
}

int RankOfPosition::operator()(const std::array<double, 3>& x) const {
  std::array<int, 3> place{};
  for (std::size_t d = 0; d < 3; ++d) {
    const auto after = std::upper_bound(low_[d].begin() + 1, low_[d].end(), x[d]);
    place[d] = static_cast<int>(after - low_[d].begin()) - 1;
  }
  return rank_at(grid_, place);
}

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
    const int parts = domain.grid[d], part = domain.place[d];
    domain.own.low[d] = edge(whole, d, part, parts);
    domain.own.high[d] = part + 1 == parts ? whole.high[d] : edge(whole, d, part + 1, parts);
  }
  return domain;
}

}  // namespace md
