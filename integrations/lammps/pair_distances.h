// How often two atoms are how far apart: the counts of a radial distribution function. Pure functions.
//
// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "neighbours.h"

namespace offpath_lammps {

// Counts the pairs of one of the first `own` atoms and any other atom that are less than `cutoff` apart, in
// `counts.size()` bins of equal width. The atoms of a box with periodic images come as copies behind the first `own`.
// `counted` (empty: all) says which atoms take part.
inline void count_pairs(std::span<const Position> atoms, std::size_t own, std::span<const std::uint8_t> counted,
                        double cutoff, std::span<std::uint64_t> counts) {
  if (own == 0 || counts.empty()) return;
  const Neighbours neighbours(atoms, cutoff);
  const double per_length = static_cast<double>(counts.size()) / cutoff;
  for (std::size_t i = 0; i < own; ++i) {
    if (!counted.empty() && counted[i] == 0) continue;
    neighbours.for_each(i, [&](std::size_t j, double squared) {
      if (!counted.empty() && counted[j] == 0) return;
      const auto bin = static_cast<std::size_t>(std::sqrt(squared) * per_length);
      if (bin < counts.size()) ++counts[bin];
    });
  }
}

}  // namespace offpath_lammps
