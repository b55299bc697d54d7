// Common neighbour analysis: which crystal's structure an atom's surroundings have (Faken and Jonsson, Comput. Mater.
// Sci. 2, 279 (1994); Tsuzuki, Branicio and Rino, Comput. Phys. Commun. 177, 518 (2007)). Pure functions.
//
// Two atoms are bonded if they are less than a cutoff apart. A bond is described by the number of neighbours that its
// two atoms have in common, the number of bonds among these, and the most and the fewest such bonds of one of them.
//
// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "neighbours.h"

namespace offpath_lammps {

// In the order of the values 1 to 5 of `compute cna/atom`.
enum class Structure : std::uint8_t { fcc, hcp, bcc, icosahedral, other };
inline constexpr std::size_t structures = 5;
inline constexpr std::size_t bonds_max = 14;  // of an atom in one of these

struct BondKind {
  int common = 0, bonds = 0, most = 0, fewest = 0;
  friend bool operator==(const BondKind&, const BondKind&) = default;
};

// `bonded`: for each of an atom's neighbours a bit for each neighbour that it is bonded to.
inline Structure structure_of(std::span<const std::uint32_t> bonded) {
  if (bonded.size() != 12 && bonded.size() != bonds_max) return Structure::other;
  std::size_t fcc = 0, hcp = 0, icosahedral = 0, bcc4 = 0, bcc6 = 0;
  for (const std::uint32_t common : bonded) {
    BondKind kind{std::popcount(common), 0, 0, static_cast<int>(bonds_max)};
    for (std::uint32_t left = common; left != 0; left &= left - 1) {
      const int bonds = std::popcount(bonded[static_cast<std::size_t>(std::countr_zero(left))] & common);
      kind.bonds += bonds;
      kind.most = std::max(kind.most, bonds);
      kind.fewest = std::min(kind.fewest, bonds);
    }
    kind.bonds /= 2;  // each was seen from both ends
    fcc += kind == BondKind{4, 2, 1, 1} ? 1 : 0;
    hcp += kind == BondKind{4, 2, 2, 0} ? 1 : 0;
    icosahedral += kind == BondKind{5, 5, 2, 2} ? 1 : 0;
    bcc4 += kind == BondKind{4, 4, 2, 2} ? 1 : 0;
    bcc6 += kind == BondKind{6, 6, 2, 2} ? 1 : 0;
  }
  if (bonded.size() == bonds_max) return bcc4 == 6 && bcc6 == 8 ? Structure::bcc : Structure::other;
  if (fcc == 12) return Structure::fcc;
  if (fcc == 6 && hcp == 6) return Structure::hcp;
  return icosahedral == 12 ? Structure::icosahedral : Structure::other;
}

// Counts the first `own` atoms by structure. The atoms of a box with periodic images come as copies behind these.
// `counted` (empty: all) says which atoms are counted; all are neighbours.
inline void count_structures(std::span<const Position> atoms, std::size_t own, std::span<const std::uint8_t> counted,
                             double cutoff, std::span<std::uint64_t, structures> counts) {
  const Neighbours neighbours(atoms, cutoff);
  for (std::size_t i = 0; i < own; ++i) {
    if (!counted.empty() && counted[i] == 0) continue;
    std::array<std::size_t, bonds_max> near{};
    std::size_t found = 0;
    neighbours.for_each(i, [&](std::size_t j, double) {
      if (found < bonds_max) near[found] = j;
      ++found;
    });
    std::array<std::uint32_t, bonds_max> bonded{};
    for (std::size_t a = 0; a < std::min(found, bonds_max); ++a)
      for (std::size_t b = a + 1; b < std::min(found, bonds_max); ++b)
        if (squared_distance(atoms[near[a]], atoms[near[b]]) < cutoff * cutoff) {
          bonded[a] |= 1u << b;
          bonded[b] |= 1u << a;
        }
    const Structure is = found > bonds_max ? Structure::other : structure_of(std::span(bonded).first(found));
    ++counts[static_cast<std::size_t>(is)];
  }
}

}  // namespace offpath_lammps
