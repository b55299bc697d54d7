// The periodic box and its parts, one for each rank.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace md {

struct Box {
  std::array<double, 3> low{}, high{};
  [[nodiscard]] double length(int d) const { return high[d] - low[d]; }
  [[nodiscard]] double volume() const { return length(0) * length(1) * length(2); }
  // The coordinate's periodic image in [low, high).
  [[nodiscard]] double wrapped(std::size_t d, double x) const;
};

struct Domain {
  Box whole, own;
  // Whether atoms may go farther than to the next rank between two exchanges: all ranks of a row are asked then.
  bool safe_exchange = false;
  std::array<int, 3> grid{1, 1, 1};   // ranks along x, y, z
  std::array<int, 3> place{0, 0, 0};  // of this rank
  // The next rank along `d` on one side (-1 or +1), around the periodic boundary.
  [[nodiscard]] int neighbour(int d, int side) const;
  // The amount to add to a coordinate of an atom that is sent that way, to make it valid there.
  [[nodiscard]] double shift(int d, int side) const;
};

// The grid of `ranks` whose parts have the smallest surface; of equal ones, that with the fewest ranks along x.
Domain make_domain(const Box& whole, int ranks, int rank);

// The rank whose part of the box contains a position.
class RankOfPosition {
 public:
  RankOfPosition(const Box& whole, int ranks);
  int operator()(const std::array<double, 3>& x) const;

 private:
  std::array<int, 3> grid_{};
  std::array<std::vector<double>, 3> low_;  // of the parts along each axis
};

}  // namespace md
