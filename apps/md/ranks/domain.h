// The periodic box, and which part of it is whose.
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
  std::array<int, 3> place{0, 0, 0};  // of this one
  // The rank one further along `d`: side -1 or +1, around the periodic boundary.
  [[nodiscard]] int neighbour(int d, int side) const;
  // What to add to a coordinate of an atom that is sent that way, so that it is right over there.
  [[nodiscard]] double shift(int d, int side) const;
};

// The grid of `ranks` whose parts have the least surface; of equals, the one with the fewest ranks along x.
Domain make_domain(const Box& whole, int ranks, int rank);

}  // namespace md
