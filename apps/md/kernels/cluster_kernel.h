// Lennard-Jones forces on four atoms at a time: a loaded and transposed pack of neighbours serves all four. Included
// like lj_kernel.h.
#pragma once

#include "md/kernels/lj_formula.h"

namespace md {

template <class P, bool with_sums>
struct LjClusterLoop {
  using Real = typename P::Real;
  using V = typename P::V;
  static constexpr int size = static_cast<int>(cluster_size);

  LjFormula<P> formula;
  const Real* x;
  double* f;
  PairSums sums;
  V xi[size], yi[size], zi[size], fx[size], fy[size], fz[size], e, w;

  LjClusterLoop(const LennardJones& potential, const Real* positions, double* forces)
      : formula(potential), x(positions), f(forces) {}

  inline __attribute__((always_inline)) void pairs(const std::int32_t* neighbours, const std::uint8_t* near_whom) {
    V xj, yj, zj;
    P::load_xyz(x, neighbours, xj, yj, zj);
    for (int a = 0; a < size; ++a) {
      const V dx = P::sub(xi[a], xj), dy = P::sub(yi[a], yj), dz = P::sub(zi[a], zj);
      const V squared = P::fma(dz, dz, P::fma(dy, dy, P::mul(dx, dx)));
      // Half of a pair's sums: it is computed from both sides.
      const V force = formula.template force<with_sums>(squared, P::with_bit(near_whom, a), 0.5, e, w);
      fx[a] = P::fma(dx, force, fx[a]);
      fy[a] = P::fma(dy, force, fy[a]);
      fz[a] = P::fma(dz, force, fz[a]);
    }
  }

  // Inlined for the same reason as LjLoop::run.
  inline __attribute__((always_inline)) PairSums run(const ClusterLists& list) {
    for (std::size_t c = list.first; c < list.last; ++c) {
      const std::int32_t* atoms = list.atoms + cluster_size * c;
      for (int a = 0; a < size; ++a) {
        const Real* at = x + 4 * static_cast<std::size_t>(atoms[a]);
        xi[a] = P::same(at[0]);
        yi[a] = P::same(at[1]);
        zi[a] = P::same(at[2]);
        fx[a] = fy[a] = fz[a] = P::same(0);
      }
      e = w = P::same(0);
      const std::uint64_t end = list.begin[c - list.first + 1];
      for (std::uint64_t k = list.begin[c - list.first]; k < end; k += P::width)
        pairs(list.neighbours + k, list.near + k);
      for (int a = 0; a < size; ++a) {
        if (a >= list.counts[c]) break;
        double* to = f + 4 * static_cast<std::size_t>(atoms[a]);
        to[0] = to[1] = to[2] = to[3] = 0;
        P::add_sums(to, fx[a], fy[a], fz[a]);
      }
      if constexpr (with_sums) {
        sums.energy += P::sum(e);
        sums.virial += P::sum(w);
      }
    }
    return sums;
  }
};

template <class P, bool with_sums>
PairSums lj_clusters(const LennardJones& potential, const ClusterLists& list, const typename P::Real* x, double* f) {
  return LjClusterLoop<P, with_sums>(potential, x, f).run(list);
}

}  // namespace md
