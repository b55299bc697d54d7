// Changes of atoms since a reference: the sums of a mean-squared displacement and of a velocity autocorrelation. Pure
// functions.
//
// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "analysis_task.h"

namespace offpath_lammps {

// Where the atom would be without periodic boundaries.
inline std::array<double, 3> unwrapped(const std::array<double, 3>& x, int image, const std::array<double, 6>& box) {
  constexpr int mask = 1023, zero = 512, bits = 10;  // of each axis
  const double a = (image & mask) - zero, b = ((image >> bits) & mask) - zero, c = (image >> 2 * bits) - zero;
  return {x[0] + box[0] * a + box[5] * b + box[4] * c, x[1] + box[1] * b + box[3] * c, x[2] + box[2] * c};
}

// Finds atoms by their ids: at once where no number is left out, as LAMMPS makes them.
class ReferenceAtoms {
 public:
  explicit ReferenceAtoms(std::span<const ReferenceAtom> in_order) : atoms_(in_order) {
    dense_ = !atoms_.empty() && static_cast<std::uint64_t>(atoms_.back().id - atoms_.front().id) == atoms_.size() - 1;
  }
  // nullptr: the atom is not in the reference.
  [[nodiscard]] const ReferenceAtom* find(std::int64_t id) const {
    if (dense_) {
      const auto at = static_cast<std::uint64_t>(id - atoms_.front().id);
      return at < atoms_.size() && atoms_[at].id == id ? &atoms_[at] : nullptr;
    }
    const auto at = std::lower_bound(atoms_.begin(), atoms_.end(), id,
                                     [](const ReferenceAtom& each, std::int64_t wanted) { return each.id < wanted; });
    return at != atoms_.end() && at->id == id ? &*at : nullptr;
  }

 private:
  std::span<const ReferenceAtom> atoms_;
  bool dense_ = false;
};

inline void add_displacement(ReferenceSums& sums, const std::array<double, 3>& now, const ReferenceAtom& then,
                             double mass) {
  sums.atoms += 1;
  sums.mass += mass;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const double moved = now[axis] - then.value[axis];
    sums.product[axis] += moved * moved;
    sums.moved[axis] += moved;
    sums.weighted[axis] += mass * moved;
  }
}

inline void add_velocities(ReferenceSums& sums, const std::array<double, 3>& now, const ReferenceAtom& then) {
  sums.atoms += 1;
  for (std::size_t axis = 0; axis < 3; ++axis) sums.product[axis] += now[axis] * then.value[axis];
}

}  // namespace offpath_lammps
