// Ghosts: copies of other ranks' atoms (or of own atoms, around the periodic box) within the cut-off of this rank's
// part.
//
// They arrive axis by axis, to the left and then to the right, and copies that came along x are forwarded along y and
// z: six exchanges, which include the corners (S. Plimpton, J. Comput. Phys. 117, 1 (1995)). If a part is narrower than
// the cut-off, copies from the neighbour are forwarded to the next one.
#pragma once

#include "md/atoms.h"
#include "md/ranks/domain.h"
#include "md/ranks/halo_swaps.h"
#include "md/ranks/ranks.h"

namespace md {

class Halo {
 public:
  Halo(const Domain& domain, Ranks& ranks, double cut) : domain_(domain), ranks_(ranks), cut_(cut) {}

  // Chooses the atoms to send, and fills the ghosts of `atoms` again.
  void make(Atoms& atoms);
  // Updates the positions of the ghosts that `make` chose.
  void update_positions(Atoms& atoms) { swaps_.update_positions(ranks_, atoms.x.data()); }
  // Sends one value for each atom from the owners to their ghosts. `number` has room for all atoms.
  void update_values(double* number) { swaps_.update_values(ranks_, number); }
  [[nodiscard]] const HaloSwaps& swaps() const { return swaps_; }

 private:
  void add_swap(int axis, int side, std::size_t first, std::size_t last, Atoms& atoms);

  const Domain& domain_;
  Ranks& ranks_;
  double cut_;
  HaloSwaps swaps_;
};

}  // namespace md
