// Finds the atoms within the cut-off of any of four atoms, and of which. Included like lj_kernel.h.
#pragma once

#include "md/kernels/kernels.h"

namespace md {

template <class P>
struct ClusterSearch {
  using Real = typename P::Real;
  using V = typename P::V;
  using M = typename P::M;
  static constexpr int size = static_cast<int>(cluster_size);

  V x[size], y[size], z[size], cut_squared[size];
  std::int32_t* out;
  std::uint8_t* near_out;

  // Appends those of [first, last) that are near. `name` maps a place to an atom; without it they are the same.
  template <bool named>
  inline __attribute__((always_inline)) void append(const Coordinates<Real>& at, const std::int32_t* name,
                                                    std::uint32_t first, std::uint32_t last) {
    for (std::uint32_t k = first; k < last; k += P::width) {
      const V xk = P::load(at.x + k), yk = P::load(at.y + k), zk = P::load(at.z + k);
      const M counted = last - k >= P::width ? P::all() : P::first(static_cast<int>(last - k));
      M near[size];
      for (int a = 0; a < size; ++a) {
        const V dx = P::sub(xk, x[a]), dy = P::sub(yk, y[a]), dz = P::sub(zk, z[a]);
        const V squared = P::fma(dz, dz, P::fma(dy, dy, P::mul(dx, dx)));
        near[a] = P::less_equal(squared, cut_squared[a], counted);
      }
      const M any = P::either(P::either(near[0], near[1]), P::either(near[2], near[3]));
      std::int32_t* const before = out;
      if constexpr (named) {
        out = P::append_named(out, name + k, any);
      } else {
        out = P::append_from(out, static_cast<std::int32_t>(k), any);
      }
      P::put_bits(near_out, near, any);
      near_out += out - before;
    }
  }
};

template <class P>
std::size_t find_of_cluster(const SearchSpace<typename P::Real>& space, const BinRow* rows, int count,
                            const ClusterSought& sought) {
  ClusterSearch<P> search;
  search.out = sought.neighbours;
  search.near_out = sought.near;
  std::int32_t least = sought.atoms[0], most = least;
  for (int a = 0; a < ClusterSearch<P>::size; ++a) {
    const std::int32_t atom = sought.atoms[a];
    search.x[a] = P::same(space.own.x[atom]);
    search.y[a] = P::same(space.own.y[atom]);
    search.z[a] = P::same(space.own.z[atom]);
    search.cut_squared[a] = P::same(a < sought.count ? space.cut_squared : -1);  // nothing is near a copy
    least = atom < least ? atom : least;
    most = atom > most ? atom : most;
  }
  for (int r = 0; r < count; ++r) {
    const BinRow& row = rows[r];
    const std::int32_t* const before = search.out;
    search.template append<false>(space.own, nullptr, row.first, row.last);
    if (static_cast<std::int64_t>(row.first) <= most &&
        least < static_cast<std::int64_t>(row.last)) {  // an atom is not its own neighbour
      for (const std::int32_t* each = before; each < search.out; ++each) {
        for (int a = 0; a < ClusterSearch<P>::size; ++a) {
          if (*each == sought.atoms[a]) sought.near[each - sought.neighbours] &= static_cast<std::uint8_t>(~(1U << a));
        }
      }
    }
    search.template append<true>(space.ghost, space.ghost_index, row.ghost_first, row.ghost_last);
  }
  return static_cast<std::size_t>(search.out - sought.neighbours);
}

}  // namespace md
