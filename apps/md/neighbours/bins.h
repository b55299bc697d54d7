// The grid that neighbours are looked for in. Bins are half the list's cut-off wide or a little more, so an atom's
// neighbours lie within two bins of its own, and two layers of bins around a rank's part of the box hold all ghosts.
//
// Own atoms lie in memory in the order of their bins (x runs fastest), which makes the five bins along x of a row
// one run of consecutive atoms. Ghosts are listed by bin beside them.
#pragma once

#include <array>

#include "md/atoms.h"
#include "md/kernels/kernels.h"
#include "md/ranks/domain.h"

namespace md {

class Bins {
 public:
  static constexpr int reach = 2;
  using Rows = std::array<BinRow, (2 * reach + 1) * (2 * reach + 1)>;

  Bins(const Box& own, double cut);

  // Puts the own atoms into the order of their bins, all arrays alike. There must be no ghosts yet. With a
  // `moved_from`, writes where each atom was before.
  void sort(Atoms& atoms, Array<std::int32_t>* moved_from = nullptr);
  // Takes note of all positions as they are now: of own atoms in their order, of ghosts in the order of their bins.
  void note_positions(const Atoms& atoms);

  // New positions of the same atoms in the same bins: atoms may have gone as far as `Bins` was made wider than its cut.
  void refresh_positions(const double* x, std::size_t own, std::size_t ghosts);

  // Everything but the positions, as one array, and from such an array. Throws BadInput where it is not one.
  void flatten(std::size_t own, Array<std::uint32_t>& flat) const;
  static Bins from_flat(const std::uint32_t* flat, std::size_t words, std::size_t own, std::size_t ghosts);

  [[nodiscard]] std::size_t count() const { return cells_; }
  [[nodiscard]] std::uint32_t first_of(std::size_t bin) const { return own_first_[bin]; }
  // The rows around bins [first, last] of one row, both of which have own atoms; those without any atom are left out.
  // Returns how many.
  int rows_around(std::size_t first, std::size_t last, Rows& rows) const;

  // Bins along x, from one end of the grid to the other: a row of them.
  [[nodiscard]] std::size_t along_x() const { return static_cast<std::size_t>(counts_[0]); }

  // By coordinate, as noted. ghost_index: which atom the ghost at a place is.
  [[nodiscard]] const std::array<Array<double>, 3>& noted() const { return own_position_; }
  [[nodiscard]] const std::array<Array<double>, 3>& noted_ghost() const { return ghost_position_; }
  [[nodiscard]] const Array<std::int32_t>& ghost_index() const { return ghost_index_; }

 private:
  Bins() = default;
  [[nodiscard]] std::uint32_t bin_of(const double* x) const;

  std::array<double, 3> low_{}, per_length_{};
  std::array<int, 3> counts_{};
  std::size_t cells_ = 0;
  Array<std::uint32_t> own_first_, ghost_first_;  // one more than there are bins
  Array<std::uint32_t> bin_, target_;
  std::array<Array<double>, 3> own_position_, ghost_position_;
  Array<std::int32_t> ghost_index_;
  Array<double> scratch_;
};

}  // namespace md
