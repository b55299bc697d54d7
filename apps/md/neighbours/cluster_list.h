// Lists of clusters: the neighbours of any of four atoms that are close together, and which of the four they are near
// (after S. Pall, B. Hess, Comput. Phys. Commun. 184, 2641 (2013), but with single atoms instead of clusters on the
// other side). A neighbour's coordinates are loaded once for all four. The list says which pairs count, so both kinds
// of list have the same pairs.
//
//   cluster    four atoms of a row of bins, consecutive in the order of x; a row's last one is filled up with copies,
//              which never count
//   near       for each neighbour a byte: bit a says that it is one of the cluster's atom a
//
//   begin[c - first]                                     begin[c - first + 1]
//   | neighbours of any atom of c    | filled up with 0, near nobody |       a multiple of cluster_unit, so of any pack
//
// Lists are full: a pair of own atoms is in both clusters' lists, so every atom's force is written once, by one thread.
#pragma once

#include <vector>

#include "md/kernels/kernels.h"
#include "md/neighbours/bins.h"
#include "md/settings.h"

namespace md {

struct ClusterBlock {
  std::size_t first = 0, last = 0;  // clusters of one thread
  Array<std::uint64_t> begin;
  Array<std::int32_t> neighbours;
  Array<std::uint8_t> near;
};

struct ClusterList {
  Array<std::int32_t> atoms;   // of the clusters; all of them are own atoms
  Array<std::uint8_t> counts;  // one to four
  std::vector<ClusterBlock> blocks;
  Array<std::uint32_t> first_of_row;  // the first cluster of each row of bins, and the end

  [[nodiscard]] ClusterLists view(std::size_t block) const {
    const ClusterBlock& one = blocks[block];
    return {one.first, one.last, one.begin.data(), one.neighbours.data(), one.near.data(), atoms.data(), counts.data()};
  }
  [[nodiscard]] std::size_t bytes() const;

  // Calls see(i, j) for every pair in the lists: atom i with its neighbour j.
  template <class See>
  void each_pair(const See& see) const {
    for (const ClusterBlock& block : blocks) {
      for (std::size_t c = block.first; c < block.last; ++c) {
        for (std::size_t a = 0; a < cluster_size; ++a) {
          for (std::uint64_t n = block.begin[c - block.first]; n < block.begin[c - block.first + 1]; ++n) {
            if ((block.near[n] >> a & 1) == 0) continue;
            see(static_cast<std::size_t>(atoms[cluster_size * c + a]), static_cast<std::size_t>(block.neighbours[n]));
          }
        }
      }
    }
  }
};

// The meaning of Lists::automatic for these settings: the kind that was faster in measurements. Throws BadInput if
// clusters are not supported.
Lists kind_of_lists(const Settings& settings);

// Makes clusters of all own atoms, in the order of x in `space`.
void make_clusters(const Bins& bins, const double* x, ClusterList& list);

// Finds their neighbours within the cut-off of `space`. The result does not depend on the instruction set or the
// threads.
template <class Real>
void list_clusters(const Bins& bins, const SearchSpace<Real>& space, FindOfCluster<Real> find, int threads,
                   ClusterList& list);

}  // namespace md
