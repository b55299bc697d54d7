// Ghosts: copies of other ranks' atoms (or of our own, around the periodic box) that lie within the cut-off of our
// part.
//
// They arrive axis by axis, to the left and then to the right, and what came along x is sent on along y and z: six
// exchanges, and corners come by themselves (S. Plimpton, J. Comput. Phys. 117, 1 (1995)). Where a part is narrower
// than the cut-off, what came from the neighbour is sent on to the next one.
#pragma once

#include <vector>

#include "md/atoms.h"
#include "md/ranks/domain.h"
#include "md/ranks/ranks.h"

namespace md {

class Halo {
 public:
  Halo(const Domain& domain, Ranks& ranks, double cut) : domain_(domain), ranks_(ranks), cut_(cut) {}

  // Chooses who is sent where, and fills the ghosts of `atoms` anew.
  void make(Atoms& atoms);
  // New positions of the ghosts that `make` chose.
  void update_positions(Atoms& atoms);
  // One value for each atom: from the owners to their ghosts. `number` has room for all atoms.
  void update_values(double* number);

 private:
  struct Swap {
    int axis = 0, to = 0, from = 0;
    double shift = 0;
    std::vector<std::int32_t> sent;
    std::size_t received_first = 0, received = 0;
  };

  void add_swap(int axis, int side, std::size_t first, std::size_t last, Atoms& atoms);

  const Domain& domain_;
  Ranks& ranks_;
  double cut_;
  std::vector<Swap> swaps_;
  Array<double> out_;
};

}  // namespace md
