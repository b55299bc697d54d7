// Who is near whom, for a block of consecutive atoms [first, last) that one thread computes.
//
// A pair within the block stands in the list of its first atom only, and its force goes to both: a *mutual* neighbour.
// A neighbour outside (a ghost, an atom of another thread's block) stands in the list of its own side as well: each
// side computes the pair for itself, so nobody writes what another one writes. A full list is one without mutual
// neighbours.
//
//   begin[i - first]            begin + mutual                    begin[i - first + 1]
//   | mutual neighbours of i    | other neighbours of i           |
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "md/kernels/kernels.h"
#include "md/neighbours/bins.h"
#include "md/neighbours/cluster_list.h"
#include "md/settings.h"

namespace md {

struct NeighbourBlock {
  std::size_t first = 0, last = 0;
  Array<std::uint64_t> begin;
  Array<std::int32_t> mutual;
  Array<std::int32_t> neighbours;

  // Lists that somebody else made, where they made them: these are used instead.
  std::optional<PairList> borrowed;

  [[nodiscard]] PairList view() const {
    if (borrowed) return *borrowed;
    return {first, last, begin.data(), mutual.data(), neighbours.data()};
  }
};

struct NeighbourList {
  std::vector<NeighbourBlock> blocks;  // none where there are lists of clusters
  ClusterList clusters;
  std::array<Array<float>, 3> own_single, ghost_single;  // what `bins` noted, where the search is in single precision
  [[nodiscard]] std::size_t bytes() const;
};

// The neighbours of all own atoms within `cut` of the positions that `bins` noted. One block a thread; the same result
// whatever the instruction set, in double precision; in single precision (Precision::mixed) those at the cut-off itself
// may be in or not.
void build_list(const Bins& bins, std::size_t own, double cut, bool half, int threads, const Kernels& kernels,
                NeighbourList& list, Precision precision = Precision::whole);

// The same pairs as lists of clusters, all full: `list.clusters`.
void build_clusters(const Bins& bins, double cut, int threads, const Kernels& kernels, NeighbourList& list,
                    Precision precision);

}  // namespace md
