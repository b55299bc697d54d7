// Which of the sixteen pairs of two clusters lie within the cut-off. Included as lj_kernel.h is.
#pragma once

#include "md/kernels.h"

namespace md {

template <class P>
ClusterPair* find_clusters(const ClusterSpace<typename P::Real>& space, const ClusterRange* ranges, std::size_t count,
                           std::uint32_t own, ClusterPair* out) {
  using V = typename P::V;
  constexpr int packs = 16 / P::width;
  constexpr std::uint32_t itself = 0x8421;  // each atom with itself
  const auto* const from = space.x + 12 * static_cast<std::size_t>(own);
  V x[packs], y[packs], z[packs];
  for (int k = 0; k < packs; ++k) {
    x[k] = P::rows(from, k * P::width);
    y[k] = P::rows(from + 4, k * P::width);
    z[k] = P::rows(from + 8, k * P::width);
  }
  const V cut_squared = P::same(space.cut_squared);
  const std::uint32_t rows = (1U << (4 * space.counts[own])) - 1;
  for (std::size_t r = 0; r < count; ++r) {
    for (std::uint32_t other = ranges[r].first; other < ranges[r].last; ++other) {
      const auto* const at = space.x + 12 * static_cast<std::size_t>(other);
      std::uint32_t near = 0;
      for (int k = 0; k < packs; ++k) {
        const V dx = P::sub(P::columns(at, k * P::width), x[k]), dy = P::sub(P::columns(at + 4, k * P::width), y[k]),
                dz = P::sub(P::columns(at + 8, k * P::width), z[k]);
        const V squared = P::fma(dz, dz, P::fma(dy, dy, P::mul(dx, dx)));
        near |= P::bits_of(P::less_equal(squared, cut_squared, P::all())) << (k * P::width);
      }
      near &= rows & (0x1111 * ((1U << space.counts[other]) - 1));
      if (other == own) near &= ~itself;
      out->other = other;
      out->counted = near;
      out += near != 0 ? 1 : 0;
    }
  }
  return out;
}

}  // namespace md
