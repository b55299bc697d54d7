// Which atoms are near an atom, found by cells. Pure functions.
//
// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace offpath_lammps {

using Position = std::array<double, 3>;

inline double squared_distance(const Position& a, const Position& b) {
  const double x = a[0] - b[0], y = a[1] - b[1], z = a[2] - b[2];
  return x * x + y * y + z * z;
}

// The atoms sorted into cells of at least the cutoff, so that partners are in the same or in a neighbouring cell; no
// more cells than atoms. `atoms` has to outlive it.
class Neighbours {
 public:
  Neighbours(std::span<const Position> atoms, double cutoff)
      : atoms_(atoms), cutoff_squared_(cutoff * cutoff), sorted_(atoms.size()) {
    if (atoms.empty()) return;
    low_ = high_ = atoms[0];
    for (const Position& atom : atoms)
      for (std::size_t axis = 0; axis < 3; ++axis) {
        low_[axis] = std::min(low_[axis], atom[axis]);
        high_[axis] = std::max(high_[axis], atom[axis]);
      }
    const auto most = std::max(1.0, std::cbrt(static_cast<double>(atoms.size())));
    for (std::size_t axis = 0; axis < 3; ++axis)
      cells_[axis] = static_cast<std::size_t>(std::clamp((high_[axis] - low_[axis]) / cutoff, 1.0, most));
    begins_.resize(cells_[0] * cells_[1] * cells_[2] + 1);
    std::vector<std::size_t> cell(atoms.size());
    for (std::size_t i = 0; i < atoms.size(); ++i) {
      const Position& atom = atoms[i];
      cell[i] = (along(atom, 2) * cells_[1] + along(atom, 1)) * cells_[0] + along(atom, 0);
      ++begins_[cell[i] + 1];
    }
    for (std::size_t i = 1; i < begins_.size(); ++i) begins_[i] += begins_[i - 1];
    std::vector<std::size_t> next(begins_.begin(), begins_.end() - 1);
    for (std::size_t i = 0; i < atoms.size(); ++i) sorted_[next[cell[i]]++] = i;
  }

  // Calls `visit` with each other atom that is less than the cutoff away from atom `i`, and the square of its distance.
  template <class Visit>
  void for_each(std::size_t i, Visit visit) const {
    std::array<std::size_t, 3> from{}, to{};
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const std::size_t here = along(atoms_[i], axis);
      from[axis] = here == 0 ? 0 : here - 1;
      to[axis] = std::min(here + 1, cells_[axis] - 1);
    }
    for (std::size_t z = from[2]; z <= to[2]; ++z)
      for (std::size_t y = from[1]; y <= to[1]; ++y) {
        const std::size_t row = (z * cells_[1] + y) * cells_[0];
        for (std::size_t at = begins_[row + from[0]]; at < begins_[row + to[0] + 1]; ++at) {
          const std::size_t j = sorted_[at];
          if (j == i) continue;
          const double squared = squared_distance(atoms_[i], atoms_[j]);
          if (squared < cutoff_squared_) visit(j, squared);
        }
      }
  }

 private:
  [[nodiscard]] std::size_t along(const Position& atom, std::size_t axis) const {
    const double part = (atom[axis] - low_[axis]) / std::max(high_[axis] - low_[axis], 1e-300);
    return std::min(static_cast<std::size_t>(part * static_cast<double>(cells_[axis])), cells_[axis] - 1);
  }

  std::span<const Position> atoms_;
  double cutoff_squared_;
  Position low_{}, high_{};
  std::array<std::size_t, 3> cells_{};
  std::vector<std::size_t> begins_, sorted_;  // of a cell's first atom; atoms by cell
};

}  // namespace offpath_lammps
