// Lennard-Jones forces for a pack of neighbours at a time. `P` is an instruction set (pack_*.h). Included by files that
// are compiled for one instruction set: no function here may be shared with another file.
#pragma once

#include "md/kernels/lj_formula.h"

namespace md {

template <class P, bool with_sums>
struct LjLoop {
  using Real = typename P::Real;
  using V = typename P::V;
  using M = typename P::M;

  LjFormula<P> formula;
  const Real* x;
  double* f;
  PairSums sums;
  V xi, yi, zi, fx, fy, fz, e, w;

  LjLoop(const LennardJones& potential, const Real* positions, double* forces)
      : formula(potential), x(positions), f(forces) {}

  // Pairs of i with the neighbours at `index`, of which `count` count.
  template <bool mutual>
  inline __attribute__((always_inline)) void pairs(const std::int32_t* index, int count, M counted) {
    V dx, dy, dz;
    P::load_xyz(x, index, dx, dy, dz);
    dx = P::sub(xi, dx);
    dy = P::sub(yi, dy);
    dz = P::sub(zi, dz);
    const V squared = P::fma(dz, dz, P::fma(dy, dy, P::mul(dx, dx)));
    const V force = formula.template force<with_sums>(squared, counted, mutual ? 1 : 0.5, e, w);
    dx = P::mul(dx, force);
    dy = P::mul(dy, force);
    dz = P::mul(dz, force);
    fx = P::add(fx, dx);
    fy = P::add(fy, dy);
    fz = P::add(fz, dz);
    if constexpr (mutual) P::subtract_xyz(f, index, count, dx, dy, dz);
  }

  template <bool mutual>
  inline __attribute__((always_inline)) void segment(const std::int32_t* from, std::int64_t count) {
    std::int64_t k = 0;
    for (; k + P::width <= count; k += P::width) pairs<mutual>(from + k, P::width, P::all());
    if (k < count) pairs<mutual>(from + k, static_cast<int>(count - k), P::first(static_cast<int>(count - k)));
  }

  // Inlined into the function that owns the loop's state, which then lives in registers: otherwise every store of a
  // force would make the compiler load the state again.
  inline __attribute__((always_inline)) PairSums run(const PairList& list) {
    // In a half list, other atoms add to an atom's forces before its own turn; in a full list none do.
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
        sums.energy += P::sum(e);
        sums.virial += P::sum(w);
      }
    }
    return sums;
  }
};

template <class P, bool with_sums>
PairSums lj(const LennardJones& potential, const PairList& list, const typename P::Real* x, double* f) {
  return LjLoop<P, with_sums>(potential, x, f).run(list);
}

}  // namespace md
