// The neighbours of a block of consecutive atoms [first, last) that one thread computes.
//
// A pair within the block is only in the list of its first atom, and its force is added to both: a *mutual* neighbour.
// A neighbour outside (a ghost, or an atom of another thread's block) is also in the list of its own side: each side
// computes the pair for itself, so threads never write to the same force. A full list has no mutual neighbours.
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

  // Lists that another component made, used in place instead of these.
  std::optional<PairList> borrowed;

  [[nodiscard]] PairList view() const {
    if (borrowed) return *borrowed;
    return {first, last, begin.data(), mutual.data(), neighbours.data()};
  }
};

struct NeighbourList {
  std::vector<NeighbourBlock> blocks;  // empty if there are lists of clusters
  ClusterList clusters;
  std::array<Array<float>, 3> own_single, ghost_single;  // the positions of `bins`, if the search is in single
                                                         // precision
  [[nodiscard]] std::size_t bytes() const;
};

// The neighbours of all own atoms within `cut` of the positions in `bins`. One block for each thread. In double
// precision the result does not depend on the instruction set; in single precision (Precision::mixed) atoms at the
// cut-off itself may be included or not.
void build_list(const Bins& bins, std::size_t own, double cut, bool half, int threads, const Kernels& kernels,
                NeighbourList& list, Precision precision = Precision::whole);

// The same for the own atoms [first, last) alone: as many blocks, one after the other.
void build_blocks(const Bins& bins, std::size_t first, std::size_t last, double cut, bool half, int threads,
                  const Kernels& kernels, NeighbourList& list, Precision precision);

// The same pairs as lists of clusters, all full: `list.clusters`.
void build_clusters(const Bins& bins, double cut, int threads, const Kernels& kernels, NeighbourList& list,
                    Precision precision);

}  // namespace md
