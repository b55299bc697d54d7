// Lennard-Jones forces on four atoms at a time: what is loaded of a pack of neighbours, and put into order, serves all four.
// Included as lj_kernel.h is.
#pragma once

#include "md/kernels.h"

namespace md {

template <class P, bool with_sums>
struct LjClusterLoop {
  using Real = typename P::Real;
  using V = typename P::V;
  static constexpr int size = static_cast<int>(cluster_size);

  V cut_squared, twelve, six;  // 48 epsilon sigma^12, 24 epsilon sigma^6
  const Real* x;
  double energy, virial;
  V xi[size], yi[size], zi[size], fx[size], fy[size], fz[size], e, w;

  inline __attribute__((always_inline)) void pairs(const std::int32_t* neighbours, const std::uint8_t* near_whom) {
    V xj, yj, zj;
    P::load_xyz(x, neighbours, xj, yj, zj);
    for (int a = 0; a < size; ++a) {
      const V dx = P::sub(xi[a], xj), dy = P::sub(yi[a], yj), dz = P::sub(zi[a], zj);
      const V squared = P::fma(dz, dz, P::fma(dy, dy, P::mul(dx, dx)));
      const auto near = P::less(squared, cut_squared, P::with_bit(near_whom, a));
      const V inverse = P::inverse(squared);
      const V inverse6 = P::mul(P::mul(inverse, inverse), inverse);
      const V force = P::where(near, P::mul(P::mul(inverse6, P::fms(twelve, inverse6, six)), inverse));
      fx[a] = P::fma(dx, force, fx[a]);
      fy[a] = P::fma(dy, force, fy[a]);
      fz[a] = P::fma(dz, force, fz[a]);
      if constexpr (with_sums) {  // half of what a pair has: it comes from both sides
        const V half = P::same(0.5), twelfth = P::mul(twelve, P::same(1.0 / 12)), sixth = P::mul(six, P::same(1.0 / 6));
        e = P::fma(half, P::where(near, P::mul(inverse6, P::fms(twelfth, inverse6, sixth))), e);
        w = P::fma(half, P::where(near, P::mul(squared, force)), w);
      }
    }
  }

  // Inlined for the reason that LjLoop::run is.
  inline __attribute__((always_inline)) void run(const ClusterLists& list, double* f) {
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
      for (std::uint64_t k = list.begin[c - list.first]; k < end; k += P::width) pairs(list.neighbours + k, list.near + k);
      for (int a = 0; a < size; ++a) {
        if (a >= list.counts[c]) break;
        double* to = f + 4 * static_cast<std::size_t>(atoms[a]);
        to[0] = to[1] = to[2] = to[3] = 0;
        P::add_sums(to, fx[a], fy[a], fz[a]);
      }
      if constexpr (with_sums) {
        energy += P::sum(e);
        virial += P::sum(w);
      }
    }
  }
};

template <class P, bool with_sums>
PairSums lj_clusters(const LennardJones& potential, const ClusterLists& list, const typename P::Real* x, double* f) {
  const double s2 = potential.sigma * potential.sigma, s6 = s2 * s2 * s2;
  LjClusterLoop<P, with_sums> loop;
  loop.cut_squared = P::same(potential.cut * potential.cut);
  loop.twelve = P::same(48 * potential.epsilon * s6 * s6);
  loop.six = P::same(24 * potential.epsilon * s6);
  loop.x = x;
  loop.energy = loop.virial = 0;
  loop.run(list, f);
  PairSums sums;
  sums.energy = loop.energy;
  sums.virial = loop.virial;
  return sums;
}

}  // namespace md
