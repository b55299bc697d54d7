// Finds atoms within the cut-off, a pack of candidates at a time. Included like lj_kernel.h.
#pragma once

#include "md/kernels/kernels.h"

namespace md {

template <class P>
struct Search {
  using Real = typename P::Real;
  using V = typename P::V;

  V x, y, z, cut_squared;
  std::int32_t* out;

  // Appends those of [first, last) that are near. `name` maps a place to an atom; without it they are the same.
  template <bool named>
  inline __attribute__((always_inline)) void append(const Coordinates<Real>& at, const std::int32_t* name,
                                                    std::uint32_t first, std::uint32_t last) {
    for (std::uint32_t k = first; k < last; k += P::width) {
      const V dx = P::sub(P::load(at.x + k), x), dy = P::sub(P::load(at.y + k), y), dz = P::sub(P::load(at.z + k), z);
      const V squared = P::fma(dz, dz, P::fma(dy, dy, P::mul(dx, dx)));
      const auto counted = last - k >= P::width ? P::all() : P::first(static_cast<int>(last - k));
      const auto near = P::less_equal(squared, cut_squared, counted);
      if constexpr (named) {
        out = P::append_named(out, name + k, near);
      } else {
        out = P::append_from(out, static_cast<std::int32_t>(k), near);
      }
    }
  }
};

template <class P>
Found find_neighbours(const SearchSpace<typename P::Real>& space, const SearchRange& range, std::uint32_t i,
                      std::int32_t* const out) {
  Search<P> search{P::same(space.own.x[i]), P::same(space.own.y[i]), P::same(space.own.z[i]),
                   P::same(space.cut_squared), out};
  // Later atoms of i's block are mutual neighbours. In a half list no row before i's own has any.
  for (int r = 0; r < range.count; ++r) {
    const BinRow& row = range.rows[r];
    const std::uint32_t first = row.first > i + 1 ? row.first : i + 1;
    search.template append<false>(space.own, nullptr, first, row.last < range.block_last ? row.last : range.block_last);
  }
  std::int32_t* const others = search.out;
  for (int r = 0; r < range.count; ++r) {
    const BinRow& row = range.rows[r];
    search.template append<false>(space.own, nullptr, row.first,
                                  row.last < range.block_first ? row.last : range.block_first);
    search.template append<false>(space.own, nullptr, row.first > range.block_last ? row.first : range.block_last,
                                  row.last);
    search.template append<true>(space.ghost, space.ghost_index, row.ghost_first, row.ghost_last);
  }
  Found found;
  found.mutual = static_cast<std::int32_t>(others - out);
  found.other = static_cast<std::int32_t>(search.out - others);
  return found;
}

}  // namespace md
