#include "md/ranks/halo.h"

#include <cmath>

namespace md {
namespace {

struct Arrival {
  std::array<double, 3> x;
  std::uint8_t type;
};

}  // namespace

void Halo::make(Atoms& atoms) {
  atoms.resize_ghosts(0);
  swaps_.clear();
  for (int axis = 0; axis < 3; ++axis) {
    const double width = domain_.whole.length(axis) / domain_.grid[axis];
    const int reach = static_cast<int>(std::ceil(cut_ / width));
    // The atoms that the next pass may forward: at first all, then those that arrived from either side in the last
    // pass.
    std::size_t to_left = 0, to_left_end = atoms.all(), to_right = 0, to_right_end = atoms.all();
    for (int pass = 0; pass < reach; ++pass) {
      const std::size_t before = atoms.all();
      add_swap(axis, -1, to_left, to_left_end, atoms);
      const std::size_t between = atoms.all();
      add_swap(axis, +1, to_right, to_right_end, atoms);
      to_left = before;
      to_left_end = between;
      to_right = between;
      to_right_end = atoms.all();
    }
  }
}

void Halo::add_swap(int axis, int side, std::size_t first, std::size_t last, Atoms& atoms) {
  HaloSwap swap;
  swap.axis = axis;
  swap.to = domain_.neighbour(axis, side);
  swap.from = domain_.neighbour(axis, -side);
  swap.shift = domain_.shift(axis, side);
  const auto d = static_cast<std::size_t>(axis);
  std::vector<Arrival> leaving;
  for (std::size_t i = first; i < last; ++i) {
    const double x = atoms.x[values * i + d];
    if (side < 0 ? x > domain_.own.low[d] + cut_ : x < domain_.own.high[d] - cut_) continue;
    swap.sent.push_back(static_cast<std::int32_t>(i));
    Arrival one{{atoms.x[values * i], atoms.x[values * i + 1], atoms.x[values * i + 2]}, atoms.type[i]};
    one.x[d] += swap.shift;
    leaving.push_back(one);
  }
  const std::vector<std::byte> in = ranks_.exchange_any(swap.to, std::as_bytes(std::span(leaving)), swap.from);
  swap.received = in.size() / sizeof(Arrival);
  swap.received_first = atoms.all();
  atoms.resize_ghosts(atoms.ghosts + swap.received);
  for (std::size_t k = 0; k < swap.received; ++k) {
    Arrival one;
    std::memcpy(&one, in.data() + k * sizeof one, sizeof one);
    double* x = atoms.x.data() + values * (swap.received_first + k);
    for (std::size_t e = 0; e < 3; ++e) x[e] = one.x[e];
    x[3] = 0;
    atoms.type[swap.received_first + k] = one.type;
  }
  swaps_.add(std::move(swap));
}

}  // namespace md
