#include "md/integrate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "md/kernels/parallel.h"
#include "md/neighbours/displacement.h"

namespace md {
namespace {

// so that an atom's position is still in the nearest cache when it is read again
constexpr std::size_t chunk = 256;

// Both half kicks, or one, of the numbers [first, last) of v and x.
void kick_drift_numbers(double half_step_per_mass, double step, bool kick_twice, std::size_t first, std::size_t last,
                        Atoms& atoms) {
  double* __restrict x = atoms.x.data();
  double* __restrict v = atoms.v.data();
  const double* __restrict f = atoms.f.data();
  if (kick_twice) {
    for (std::size_t n = first; n < last; ++n) {
      const double change = half_step_per_mass * f[n];
      const double whole = v[n] + change;
      v[n] = whole + change;
      x[n] += step * v[n];
    }
  } else {
    for (std::size_t n = first; n < last; ++n) {
      v[n] += half_step_per_mass * f[n];
      x[n] += step * v[n];
    }
  }
}

void kick_drift_some(std::span<const double> half_step_per_mass, double step, bool kick_twice, std::size_t first,
                     std::size_t last, Atoms& atoms) {
  if (half_step_per_mass.size() == 1)
    return kick_drift_numbers(half_step_per_mass[0], step, kick_twice, values * first, values * last, atoms);
  for (std::size_t i = first; i < last; ++i)
    kick_drift_numbers(half_step_per_mass[atoms.type[i]], step, kick_twice, values * i, values * (i + 1), atoms);
}

// The largest v^2 of [first, last); a NaN stays.
double fastest_squared(const Atoms& atoms, std::size_t first, std::size_t last) {
  double most = 0;
  for (std::size_t i = first; i < last; ++i) {
    const double* v = atoms.v.data() + values * i;
    const double s = v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
    most = s <= most ? most : s;
  }
  return std::isnan(most) ? std::numeric_limits<double>::infinity() : most;
}

}  // namespace

void kick(std::span<const double> half_step_per_mass, int threads, Atoms& atoms) {
  in_blocks(threads, atoms.own, [&](int, std::size_t first, std::size_t last) {
    double* v = atoms.v.data();
    const double* f = atoms.f.data();
    if (half_step_per_mass.size() == 1) {
      const double each = half_step_per_mass[0];
      for (std::size_t n = values * first; n < values * last; ++n) v[n] += each * f[n];
      return;
    }
    for (std::size_t i = first; i < last; ++i) {
      const double each = half_step_per_mass[atoms.type[i]];
      for (std::size_t n = values * i; n < values * (i + 1); ++n) v[n] += each * f[n];
    }
  });
}

Motion kick_drift(std::span<const double> half_step_per_mass, double step, bool kick_twice, int threads, Atoms& atoms,
                  const Array<double>* since) {
  std::vector<Motion> most(static_cast<std::size_t>(threads));
  in_blocks(threads, atoms.own, [&](int block, std::size_t first, std::size_t last) {
    if (since == nullptr) return kick_drift_some(half_step_per_mass, step, kick_twice, first, last, atoms);
    Motion squared;
    for (std::size_t from = first; from < last; from += chunk) {
      const std::size_t to = std::min(last, from + chunk);
      kick_drift_some(half_step_per_mass, step, kick_twice, from, to, atoms);
      squared.since = std::max(squared.since, furthest_squared(atoms, *since, from, to));
      squared.step = std::max(squared.step, fastest_squared(atoms, from, to));
    }
    most[static_cast<std::size_t>(block)] = squared;
  });
  Motion all;
  for (const Motion& one : most) {
    all.since = std::max(all.since, std::sqrt(one.since));
    all.step = std::max(all.step, step * std::sqrt(one.step));
  }
  return all;
}

void scale_velocities(double factor, int threads, Atoms& atoms) {
  in_blocks(threads, atoms.own, [&](int, std::size_t first, std::size_t last) {
    double* v = atoms.v.data();
    for (std::size_t n = values * first; n < values * last; ++n) v[n] *= factor;
  });
}

}  // namespace md
