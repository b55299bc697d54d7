// Forces that were computed before atoms changed their order and their rank are brought to where the atoms are now.
//
// A note travels with each atom through exchange and sort, in the place of its force: who had it, and where. Forces of
// atoms that stayed are only put in order. Those of atoms that left take the way that the atoms took: the same
// positions go through the same exchange once more.
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
  // After they were exchanged and sorted: writes f of the own atoms. `f` and `x` are those of this rank's atoms when
  // their places were noted, four values an atom, `own` of them. All ranks call it.
  void bring_home(const double* f, const double* x, std::size_t own, const Domain& domain, Ranks& ranks, Atoms& atoms);

 private:
  struct Arrived {
    int rank;
    std::int32_t place;  // there, before
    std::size_t now;
  };
  std::vector<Arrived> arrived_;
  Array<std::uint8_t> stayed_;
  Atoms leaving_;
};

}  // namespace md
