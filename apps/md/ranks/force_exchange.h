// Brings forces that were computed before atoms changed their order and rank to the atoms' new places.
//
// Forces of atoms that left take the same way as the atoms: the same positions go through the same exchange once more.
// A note travels with each atom through exchange and sort, instead of its force: its previous rank and place. By these
// notes all forces are put in order. Hosts do both at once; agents send forces on while their hosts sort and make lists
// (offload/exchanged_forces.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "md/atoms.h"
#include "md/ranks/domain.h"
#include "md/ranks/rank_messages.h"

namespace md {

// Where an atom was before exchange and sort.
struct Place {
  std::int32_t rank = 0, index = 0;
};

// Overwrites f of the own atoms with their places, before they are exchanged.
void note_places(int rank, Atoms& atoms);
// Reads them afterwards.
void read_places(const Atoms& atoms, Array<Place>& places);

class ForceExchange {
 public:
  // `f` and `x` belong to this rank's atoms before they are exchanged, four values for each of `own` atoms. All ranks
  // call it, and afterwards one of the next two.
  void send_after(const double* f, const double* x, std::size_t own, const Domain& domain, RankMessages& messages);
  // Writes `to` in the order of `places`, from the same `f`.
  void put_in_order(const double* f, std::size_t own, int rank, std::span<const Place> places, double* to);
  // Writes f of the atoms in the order of the notes there.
  void put_in_order(const double* f, std::size_t own, int rank, Atoms& atoms);

 private:
  template <class PlaceOf>
  void put_in_order(const double* f, std::size_t own, int rank, std::size_t count, const PlaceOf& place_of, double* to);
  struct Arrived {
    Place place;
    std::size_t now;
  };
  std::vector<Arrived> arrived_;
  Atoms sent_;  // atoms that left, then those that came from other ranks or back; v and id: their places
};

}  // namespace md
