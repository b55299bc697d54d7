#include "md/integrate.h"

#include "md/parallel.h"

namespace md {

void kick(double half_step_per_mass, int threads, Atoms& atoms) {
  in_blocks(threads, atoms.own, [&](int, std::size_t first, std::size_t last) {
    double* v = atoms.v.data();
    const double* f = atoms.f.data();
    for (std::size_t n = values * first; n < values * last; ++n) v[n] += half_step_per_mass * f[n];
  });
}

void kick_drift(double half_step_per_mass, double step, bool kick_twice, int threads, Atoms& atoms) {
  in_blocks(threads, atoms.own, [&](int, std::size_t first, std::size_t last) {
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
  });
}

}  // namespace md
