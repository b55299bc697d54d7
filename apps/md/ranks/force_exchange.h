// Brings forces that were computed before atoms changed their order and rank to the atoms' new places.
//
// A note travels with each atom through exchange and sort, instead of its force: its previous rank and place. Forces of
// atoms that stayed are only reordered. Those of atoms that left take the same way as the atoms: the same positions go
// through the same exchange once more.
#pragma once

#include <vector>

#include "md/atoms.h"
#include "md/ranks/domain.h"
#include "md/ranks/ranks.h"

namespace md {

class ForceExchange {
 public:
  // Overwrites f of the own atoms, before they are exchanged.
  void note_places(const Ranks& ranks, Atoms& atoms);
  // After exchange and sort: writes f of the own atoms. `f` and `x` belong to this rank's atoms at the time of
  // note_places, four values for each of `own` atoms. All ranks call it.
  void bring_home(const double* f, const double* x, std::size_t own, const Domain& domain, Ranks& ranks, Atoms& atoms);

 private:
  struct Arrived {
    int rank;
    std::int32_t place;  // on that rank, before
    std::size_t now;
  };
  std::vector<Arrived> arrived_;
  Array<std::uint8_t> stayed_;
  Atoms leaving_;
};

}  // namespace md
