// The grid for the search of neighbours. Bins are at least half the list's cut-off wide, so an atom's neighbours lie
// within two bins of its own, and two layers of bins around a rank's part of the box hold all ghosts.
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

  // Sorts the own atoms by their bins, in all arrays. There must be no ghosts. Writes each atom's previous index to
  // `moved_from`, if given.
  void sort(Atoms& atoms, Array<std::int32_t>* moved_from = nullptr);
  // Copies all positions: of own atoms in their order, of ghosts in the order of their bins.
  void note_positions(const Atoms& atoms);

  // Updates the positions of the same atoms in the same bins: an atom may have moved by as much as bins are wider than
  // the cut-off requires.
  void refresh_positions(const double* x, std::size_t own, std::size_t ghosts);

  // Everything except the positions, as one array, and back. Throws BadInput if the array is invalid.
  // Without the own atoms before `from`: the rest are numbered from 0, and bins that end before it are empty.
  void flatten(std::size_t own, Array<std::uint32_t>& flat, std::size_t from = 0) const;
  static Bins from_flat(const std::uint32_t* flat, std::size_t words, std::size_t own, std::size_t ghosts);

  [[nodiscard]] std::size_t count() const { return cells_; }
  [[nodiscard]] std::uint32_t first_of(std::size_t bin) const { return own_first_[bin]; }
  // The first own atom that may be a neighbour of `atom` or of a later one.
  [[nodiscard]] std::size_t first_around(std::size_t atom) const;
  // The rows around bins [first, last] of one row, both of which have own atoms; empty rows are left out. Returns their
  // number.
  int rows_around(std::size_t first, std::size_t last, Rows& rows) const;

  // Number of bins along x, from one end of the grid to the other: a row.
  [[nodiscard]] std::size_t along_x() const { return static_cast<std::size_t>(counts_[0]); }

  // The copied positions by coordinate. ghost_index: the atom of the ghost at a place.
  [[nodiscard]] const std::array<Array<double>, 3>& noted() const { return own_position_; }
  [[nodiscard]] const std::array<Array<double>, 3>& noted_ghost() const { return ghost_position_; }
  [[nodiscard]] const Array<std::int32_t>& ghost_index() const { return ghost_index_; }

 private:
  Bins() = default;
  [[nodiscard]] std::uint32_t bin_of(const double* x) const;

  std::array<double, 3> low_{}, per_length_{};
  std::array<int, 3> counts_{};
  std::size_t cells_ = 0;
  Array<std::uint32_t> own_first_, ghost_first_;  // one more entry than there are bins
  Array<std::uint32_t> bin_, target_;
  std::array<Array<double>, 3> own_position_, ghost_position_;
  Array<std::int32_t> ghost_index_;
  Array<double> scratch_;
};

}  // namespace md
