#include "md/neighbours/displacement.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace md {

void keep_positions(const Atoms& atoms, Array<double>& kept) {
  kept.resize(values * atoms.own);
  std::memcpy(kept.data(), atoms.x.data(), values * atoms.own * sizeof(double));
}

double furthest_squared(const Atoms& atoms, const Array<double>& kept, std::size_t first, std::size_t last) {
  // Several independent maxima, so that the loop does not wait for one.
  constexpr std::size_t lanes = 4;
  std::array<double, lanes> most{};
  const double *x = atoms.x.data(), *before = kept.data();
  const auto squared = [&](std::size_t i) {
    const double dx = x[values * i] - before[values * i], dy = x[values * i + 1] - before[values * i + 1],
                 dz = x[values * i + 2] - before[values * i + 2];
    return dx * dx + dy * dy + dz * dz;
  };
  std::size_t i = first;
  for (; i + lanes <= last; i += lanes) {
    for (std::size_t k = 0; k < lanes; ++k) {
      const double s = squared(i + k);
      most[k] = s <= most[k] ? most[k] : s;  // a NaN stays
    }
  }
  for (; i < last; ++i) {
    const double s = squared(i);
    most[0] = s <= most[0] ? most[0] : s;
  }
  double largest = 0;
  for (const double each : most) {
    if (std::isnan(each)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, each);
  }
  return largest;
}

double furthest_since(const Atoms& atoms, const Array<double>& kept) {
  return std::sqrt(furthest_squared(atoms, kept, 0, atoms.own));
}

}  // namespace md
