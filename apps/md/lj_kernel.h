// Lennard-Jones forces for a pack of neighbours at a time. `P` is an instruction set (pack_*.h). Included by the files that
// are compiled for one instruction set: nothing here may be a function that another file could share.
#pragma once

#include "md/kernels.h"

namespace md {

template <class P, bool with_sums>
struct LjLoop {
  using Real = typename P::Real;
  using V = typename P::V;
  using M = typename P::M;

  V cut_squared, twelve, six;   // 48 epsilon sigma^12, 24 epsilon sigma^6
  const Real* x;
  double* f;
  double energy, virial;
  V xi, yi, zi, fx, fy, fz, e, w;

  // Pairs of i with the neighbours at `index`, of which `count` count.
  template <bool mutual>
  inline __attribute__((always_inline)) void pairs(const std::int32_t* index, int count, M counted) {
    V dx, dy, dz;
    P::load_xyz(x, index, dx, dy, dz);
    dx = P::sub(xi, dx);
    dy = P::sub(yi, dy);
    dz = P::sub(zi, dz);
    const V squared = P::fma(dz, dz, P::fma(dy, dy, P::mul(dx, dx)));
    const M near = P::less(squared, cut_squared, counted);
    const V inverse = P::inverse(squared);
    const V inverse6 = P::mul(P::mul(inverse, inverse), inverse);
    const V force = P::where(near, P::mul(P::mul(inverse6, P::fms(twelve, inverse6, six)), inverse));
    dx = P::mul(dx, force);
    dy = P::mul(dy, force);
    dz = P::mul(dz, force);
    fx = P::add(fx, dx);
    fy = P::add(fy, dy);
    fz = P::add(fz, dz);
    if constexpr (mutual) P::subtract_xyz(f, index, count, dx, dy, dz);
    if constexpr (with_sums) {
      const V share = P::same(mutual ? 1 : 0.5);
      const V twelfth = P::mul(twelve, P::same(1.0 / 12)), sixth = P::mul(six, P::same(1.0 / 6));
      e = P::fma(share, P::where(near, P::mul(inverse6, P::fms(twelfth, inverse6, sixth))), e);
      w = P::fma(share, P::where(near, P::mul(squared, force)), w);
    }
  }

  template <bool mutual>
  inline __attribute__((always_inline)) void segment(const std::int32_t* from, std::int64_t count) {
    std::int64_t k = 0;
    for (; k + P::width <= count; k += P::width) pairs<mutual>(from + k, P::width, P::all());
    if (k < count) pairs<mutual>(from + k, static_cast<int>(count - k), P::first(static_cast<int>(count - k)));
  }

  // Inlined into the function that owns the loop's state, which then lives in registers: as an object that others may see,
  // every force that is written would have it read again.
  inline __attribute__((always_inline)) void run(const PairList& list) {
    // Of a half list, others write to an atom's forces before its own turn comes; of a full one nobody does.
    std::int32_t any_mutual = 0;
    for (std::size_t i = list.first; i < list.last; ++i) any_mutual |= list.mutual[i - list.first];
    if (any_mutual != 0)
      for (std::size_t n = 4 * list.first; n < 4 * list.last; ++n) f[n] = 0;
    for (std::size_t i = list.first; i < list.last; ++i) {
      const std::uint64_t begin = list.begin[i - list.first], end = list.begin[i - list.first + 1];
      const std::int64_t mutual = list.mutual[i - list.first];
      xi = P::same(x[4 * i]);
      yi = P::same(x[4 * i + 1]);
      zi = P::same(x[4 * i + 2]);
      fx = fy = fz = P::same(0);
      e = w = P::same(0);
      segment<true>(list.neighbours + begin, mutual);
      segment<false>(list.neighbours + begin + mutual, static_cast<std::int64_t>(end - begin) - mutual);
      if (any_mutual == 0) f[4 * i] = f[4 * i + 1] = f[4 * i + 2] = f[4 * i + 3] = 0;
      P::add_sums(f + 4 * i, fx, fy, fz);
      if constexpr (with_sums) {
        energy += P::sum(e);
        virial += P::sum(w);
      }
    }
  }
};

template <class P, bool with_sums>
PairSums lj(const LennardJones& potential, const PairList& list, const typename P::Real* x, double* f) {
  const double s2 = potential.sigma * potential.sigma, s6 = s2 * s2 * s2;
  LjLoop<P, with_sums> loop;
  loop.cut_squared = P::same(potential.cut * potential.cut);
  loop.twelve = P::same(48 * potential.epsilon * s6 * s6);
  loop.six = P::same(24 * potential.epsilon * s6);
  loop.x = x;
  loop.f = f;
  loop.energy = loop.virial = 0;
  loop.run(list);
  PairSums sums;
  sums.energy = loop.energy;
  sums.virial = loop.virial;
  return sums;
}

}  // namespace md
