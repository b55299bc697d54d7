// The embedded atom method of one element, a pack of neighbours at a time. Included like lj_kernel.h. Cubics of a table
// have four values each, as atoms have, so they are loaded and transposed like these.
#pragma once

#include <cstring>

#include "md/kernels/kernels.h"

namespace md {

template <class P>
struct EamLoop {
  using V = typename P::V;
  using M = typename P::M;
  static constexpr int width = P::width;

  const double* x;
  V cut_squared, xi, yi, zi;

  EamLoop(const EamPairs& tables, const double* positions)
      : x(positions), cut_squared(P::same(tables.cut * tables.cut)) {}

  inline __attribute__((always_inline)) void at_atom(std::size_t i) {
    xi = P::same(x[4 * i]);
    yi = P::same(x[4 * i + 1]);
    zi = P::same(x[4 * i + 2]);
  }

  struct Apart {
    V dx, dy, dz, squared, r;
  };
  inline __attribute__((always_inline)) V squared(const std::int32_t* index) const {
    V dx, dy, dz;
    P::load_xyz(x, index, dx, dy, dz);
    dx = P::sub(xi, dx);
    dy = P::sub(yi, dy);
    dz = P::sub(zi, dz);
    return P::fma(dz, dz, P::fma(dy, dy, P::mul(dx, dx)));
  }
  inline __attribute__((always_inline)) Apart apart(const std::int32_t* index) const {
    Apart a;
    P::load_xyz(x, index, a.dx, a.dy, a.dz);
    a.dx = P::sub(xi, a.dx);
    a.dy = P::sub(yi, a.dy);
    a.dz = P::sub(zi, a.dz);
    a.squared = P::fma(a.dz, a.dz, P::fma(a.dy, a.dy, P::mul(a.dx, a.dx)));
    a.r = P::sqrt(a.squared);
    return a;
  }

  // The cubics at r, and where in them.
  struct Place {
    std::int32_t cubic[width];
    V p;
  };
  inline __attribute__((always_inline)) static Place place(const EamTable& table, V r) {
    Place found;
    found.p = P::place(P::mul(r, P::same(table.per_spacing)), table.last, found.cubic);
    return found;
  }

  struct Value {
    V value, slope;
  };
  template <bool with_slope>
  inline __attribute__((always_inline)) static Value value(const EamTable& table, const Place& at) {
    V c0, c1, c2, c3;
    P::load_four(table.cubics, at.cubic, c0, c1, c2, c3);
    Value found;
    found.value = P::fma(P::fma(P::fma(c3, at.p, c2), at.p, c1), at.p, c0);
    if constexpr (with_slope) {
      const V inner = P::fma(P::mul(P::same(3), c3), at.p, P::mul(P::same(2), c2));
      found.slope = P::mul(P::fma(inner, at.p, c1), P::same(table.per_spacing));
    }
    return found;
  }

  template <class Pack>
  inline __attribute__((always_inline)) static void segment(const std::int32_t* from, std::int64_t count,
                                                            const Pack& pack) {
    std::int64_t k = 0;
    for (; k + width <= count; k += width) pack(from + k, width, P::all());
    if (k < count) pack(from + k, static_cast<int>(count - k), P::first(static_cast<int>(count - k)));
  }
};

// Appends the neighbours of [from, from + count) that are near.
template <class P>
inline __attribute__((always_inline)) std::int32_t* append_near(const EamLoop<P>& loop, const std::int32_t* from,
                                                                std::int64_t count, std::int32_t* out) {
  using M = typename P::M;
  EamLoop<P>::segment(from, count, [&](const std::int32_t* index, int, M counted) __attribute__((always_inline)) {
    out = P::append_named(out, index, P::less(loop.squared(index), loop.cut_squared, counted));
  });
  return out;
}

template <class P>
void eam_densities(const EamPairs& tables, const PairList& list, const double* x, const NearPairs& near,
                   double* density) {
  using V = typename P::V;
  using M = typename P::M;
  using Loop = EamLoop<P>;
  constexpr int spare_indices = 16;
  Loop loop(tables, x);
  for (std::size_t i = list.first; i < list.last; ++i) density[i] = 0;
  std::int32_t* out = near.neighbours;
  for (std::size_t i = list.first; i < list.last; ++i) {
    const std::size_t place = i - list.first;
    const std::int32_t* const listed = list.neighbours + list.begin[place];
    const std::int64_t count = static_cast<std::int64_t>(list.begin[place + 1] - list.begin[place]);
    loop.at_atom(i);
    std::int32_t* const found = out;
    out = append_near<P>(loop, listed, list.mutual[place], out);
    const std::int64_t mutual = out - found;
    out = append_near<P>(loop, listed + list.mutual[place], count - list.mutual[place], out);
    for (int n = 0; n < spare_indices; ++n) out[n] = static_cast<std::int32_t>(i);
    near.begin[place] = static_cast<std::uint64_t>(found - near.neighbours);
    near.mutual[place] = static_cast<std::int32_t>(mutual);
    V sum = P::same(0);
    const auto from = [&](const std::int32_t* index, M counted) __attribute__((always_inline)) {
      const auto at = Loop::place(tables.density, P::sqrt(loop.squared(index)));
      return P::where(counted, Loop::template value<false>(tables.density, at).value);
    };
    Loop::segment(found, mutual, [&](const std::int32_t* index, int length, M counted) __attribute__((always_inline)) {
      const V each = from(index, counted);
      sum = P::add(sum, each);
      double all[P::width];
      std::memcpy(all, &each, sizeof each);
      for (int n = 0; n < length; ++n) density[index[n]] += all[n];
    });
    Loop::segment(found + mutual, out - found - mutual,
                  [&](const std::int32_t* index, int, M counted)
                      __attribute__((always_inline)) { sum = P::add(sum, from(index, counted)); });
    density[i] += P::sum(sum);
  }
  near.begin[list.last - list.first] = static_cast<std::uint64_t>(out - near.neighbours);
}

// The pairs of `list` are within the cut-off.
template <class P>
PairSums eam_forces(const EamPairs& tables, const PairList& list, const double* x, const double* slope, double* f) {
  using V = typename P::V;
  using M = typename P::M;
  using Loop = EamLoop<P>;
  Loop loop(tables, x);
  PairSums sums;
  for (std::size_t n = 4 * list.first; n < 4 * list.last; ++n) f[n] = 0;
  for (std::size_t i = list.first; i < list.last; ++i) {
    const std::uint64_t begin = list.begin[i - list.first], end = list.begin[i - list.first + 1];
    const std::int64_t mutual = list.mutual[i - list.first];
    loop.at_atom(i);
    const V slope_i = P::same(slope[i]);
    V fx = P::same(0), fy = fx, fz = fx, energy = fx, virial = fx;
    const auto pair = [&](const std::int32_t* index, int count, M counted, double share,
                          bool both) __attribute__((always_inline)) {
      const auto apart = loop.apart(index);
      double slopes[P::width];
      for (int n = 0; n < P::width; ++n) slopes[n] = slope[index[n]];
      const V both_slopes = P::add(slope_i, P::load(slopes));
      const auto at = Loop::place(tables.density, apart.r);
      const auto density = Loop::template value<true>(tables.density, at);
      const auto r_phi =
          Loop::template value<true>(tables.pair, tables.same_grid ? at : Loop::place(tables.pair, apart.r));
      const V inverse = P::inverse(apart.r);
      const V phi = P::mul(r_phi.value, inverse);
      const V phi_slope = P::mul(P::sub(r_phi.slope, phi), inverse);
      const V outward = P::fma(both_slopes, density.slope, phi_slope);  // minus the force
      const V force = P::where(counted, P::mul(P::sub(P::same(0), outward), inverse));
      const V x_part = P::mul(apart.dx, force), y_part = P::mul(apart.dy, force), z_part = P::mul(apart.dz, force);
      fx = P::add(fx, x_part);
      fy = P::add(fy, y_part);
      fz = P::add(fz, z_part);
      if (both) P::subtract_xyz(f, index, count, x_part, y_part, z_part);
      const V part = P::same(share);
      energy = P::fma(part, P::where(counted, phi), energy);
      virial = P::fma(part, P::where(counted, P::mul(apart.squared, force)), virial);
    };
    Loop::segment(list.neighbours + begin, mutual,
                  [&](const std::int32_t* index, int count, M counted) { pair(index, count, counted, 1, true); });
    Loop::segment(list.neighbours + begin + mutual, static_cast<std::int64_t>(end - begin) - mutual,
                  [&](const std::int32_t* index, int count, M counted) { pair(index, count, counted, 0.5, false); });
    P::add_sums(f + 4 * i, fx, fy, fz);
    sums.energy += P::sum(energy);
    sums.virial += P::sum(virial);
  }
  return sums;
}

}  // namespace md
