#include "md/integrate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "md/kernels/parallel.h"
#include "md/neighbours/displacement.h"

namespace md {
namespace {

// so that an atom's position is still in the nearest cache when it is read again
constexpr std::size_t chunk = 256;

void kick_drift_some(double half_step_per_mass, double step, bool kick_twice, std::size_t first, std::size_t last,
                     Atoms& atoms) {
  double* __restrict x = atoms.x.data();
  double* __restrict v = atoms.v.data();
  const double* __restrict f = atoms.f.data();
  if (kick_twice) {
    for (std::size_t n = values * first; n < values * last; ++n) {
      const double change = half_step_per_mass * f[n];
      const double whole = v[n] + change;
      v[n] = whole + change;
      x[n] += step * v[n];
    }
  } else {
    for (std::size_t n = values * first; n < values * last; ++n) {
      v[n] += half_step_per_mass * f[n];
      x[n] += step * v[n];
    }
  }
}

}  // namespace

void kick(double half_step_per_mass, int threads, Atoms& atoms) {
  in_blocks(threads, atoms.own, [&](int, std::size_t first, std::size_t last) {
    double* v = atoms.v.data();
    const double* f = atoms.f.data();
    for (std::size_t n = values * first; n < values * last; ++n) v[n] += half_step_per_mass * f[n];
  });
}

double kick_drift(double half_step_per_mass, double step, bool kick_twice, int threads, Atoms& atoms,
                  const Array<double>* since) {
  std::vector<double> most(static_cast<std::size_t>(threads), 0.0);
  in_blocks(threads, atoms.own, [&](int block, std::size_t first, std::size_t last) {
    if (since == nullptr) return kick_drift_some(half_step_per_mass, step, kick_twice, first, last, atoms);
    double furthest = 0;
    for (std::size_t from = first; from < last; from += chunk) {
      const std::size_t to = std::min(last, from + chunk);
      kick_drift_some(half_step_per_mass, step, kick_twice, from, to, atoms);
      furthest = std::max(furthest, furthest_squared(atoms, *since, from, to));
    }
    most[static_cast<std::size_t>(block)] = furthest;
  });
  return std::sqrt(*std::max_element(most.begin(), most.end()));
}

}  // namespace md
