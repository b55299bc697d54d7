// The periodic box and its parts, one for each rank.
#pragma once

#include <array>

namespace md {

struct Box {
  std::array<double, 3> low{}, high{};
  [[nodiscard]] double length(int d) const { return high[d] - low[d]; }
  [[nodiscard]] double volume() const { return length(0) * length(1) * length(2); }
};

struct Domain {
  Box whole, own;
  std::array<int, 3> grid{1, 1, 1};   // ranks along x, y, z
  std::array<int, 3> place{0, 0, 0};  // of this rank
  // The next rank along `d` on one side (-1 or +1), around the periodic boundary.
  [[nodiscard]] int neighbour(int d, int side) const;
  // The amount to add to a coordinate of an atom that is sent that way, to make it valid there.
  [[nodiscard]] double shift(int d, int side) const;
};

// The grid of `ranks` whose parts have the smallest surface; of equal ones, that with the fewest ranks along x.
Domain make_domain(const Box& whole, int ranks, int rank);

}  // namespace md
