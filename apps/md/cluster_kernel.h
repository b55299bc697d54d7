// Lennard-Jones forces for two clusters of four atoms at a time: sixteen pairs, of which the list says which count. Coordinates
// lie cluster by cluster, so they are loaded as they are: nothing is gathered or transposed. Included as lj_kernel.h is.
#pragma once

#include <cstring>

#include "md/kernels.h"

namespace md {

template <class P, bool with_sums>
struct LjClusterLoop {
  using Real = typename P::Real;
  using V = typename P::V;
  static constexpr int packs = 16 / P::width;  // for the pairs of two clusters

  V cut_squared, twelve, six;  // 48 epsilon sigma^12, 24 epsilon sigma^6
  const Real* x;
  double energy, virial;
  V xi[packs], yi[packs], zi[packs], fx[packs], fy[packs], fz[packs], e, w;

  inline __attribute__((always_inline)) void pairs(const ClusterPair& pair) {
    const Real* at = x + 12 * static_cast<std::size_t>(pair.other);
    for (int k = 0; k < packs; ++k) {
      const V dx = P::sub(xi[k], P::columns(at, k * P::width));
      const V dy = P::sub(yi[k], P::columns(at + 4, k * P::width));
      const V dz = P::sub(zi[k], P::columns(at + 8, k * P::width));
      const V squared = P::fma(dz, dz, P::fma(dy, dy, P::mul(dx, dx)));
      const auto near = P::less(squared, cut_squared, P::from_bits(pair.counted >> (k * P::width)));
      const V inverse = P::inverse(squared);
      const V inverse6 = P::mul(P::mul(inverse, inverse), inverse);
      const V force = P::where(near, P::mul(P::mul(inverse6, P::fms(twelve, inverse6, six)), inverse));
      fx[k] = P::fma(dx, force, fx[k]);
      fy[k] = P::fma(dy, force, fy[k]);
      fz[k] = P::fma(dz, force, fz[k]);
      if constexpr (with_sums) {  // half of what a pair has: it comes from both sides
        const V half = P::same(0.5), twelfth = P::mul(twelve, P::same(1.0 / 12)), sixth = P::mul(six, P::same(1.0 / 6));
        e = P::fma(half, P::where(near, P::mul(inverse6, P::fms(twelfth, inverse6, sixth))), e);
        w = P::fma(half, P::where(near, P::mul(squared, force)), w);
      }
    }
  }

  // Adds up what each atom of a cluster got, in double precision.
  inline __attribute__((always_inline)) void write(const std::int32_t* atoms, int count, double* f) const {
    Real by_pair[3][16];
    std::memcpy(by_pair[0], fx, sizeof by_pair[0]);
    std::memcpy(by_pair[1], fy, sizeof by_pair[1]);
    std::memcpy(by_pair[2], fz, sizeof by_pair[2]);
    for (int a = 0; a < count; ++a) {
      double* to = f + 4 * static_cast<std::size_t>(atoms[a]);
      for (int d = 0; d < 3; ++d) {
        const Real* from = by_pair[d] + 4 * a;
        to[d] = (static_cast<double>(from[0]) + static_cast<double>(from[1])) + (static_cast<double>(from[2]) + static_cast<double>(from[3]));
      }
      to[3] = 0;
    }
  }

  // Inlined for the reason that LjLoop::run is.
  inline __attribute__((always_inline)) void run(const ClusterPairs& list, double* f) {
    for (std::size_t c = list.first; c < list.last; ++c) {
      const Real* own = x + 12 * c;
      for (int k = 0; k < packs; ++k) {
        xi[k] = P::rows(own, k * P::width);
        yi[k] = P::rows(own + 4, k * P::width);
        zi[k] = P::rows(own + 8, k * P::width);
        fx[k] = fy[k] = fz[k] = P::same(0);
      }
      e = w = P::same(0);
      const std::uint64_t end = list.begin[c - list.first + 1];
      for (std::uint64_t n = list.begin[c - list.first]; n < end; ++n) pairs(list.pairs[n]);
      write(list.atoms + cluster_size * c, list.counts[c], f);
      if constexpr (with_sums) {
        energy += P::sum(e);
        virial += P::sum(w);
      }
    }
  }
};

template <class P, bool with_sums>
PairSums lj_clusters(const LennardJones& potential, const ClusterPairs& list, const typename P::Real* x, double* f) {
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
