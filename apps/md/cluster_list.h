// Lists of clusters: which clusters of four atoms have atoms near one another, and which atoms these are (S. Pall, B. Hess,
// Comput. Phys. Commun. 184, 2641 (2013)). A pair of clusters is loaded as it lies and computed as a whole; pairs of atoms
// that a list of pairs would not have are left out by a mask, so both kinds of list have the same pairs.
//
// Clusters are made within a row of bins along x, of its own atoms and of its ghosts, each in the order of x; a row's last one is
// filled up with copies of its first atom, which never count.
//
//   number    0 ...                                    own            own + ghosts
//   cluster   | own atoms, row by row of bins          | ghosts, likewise |
//
// Lists are full: a pair of own atoms stands in both clusters' lists, so every atom's force is written once, by one thread.
#pragma once

#include <array>
#include <vector>

#include "md/bins.h"
#include "md/kernels.h"
#include "md/settings.h"

namespace md {

struct ClusterBlock {
  std::size_t first = 0, last = 0;  // clusters that one thread computes
  Array<std::uint64_t> begin;
  Array<ClusterPair> pairs;
};

// Coordinates as the kernels of clusters read them: for each cluster four x, four y, four z.
struct ClusterCoordinates {
  Array<double> whole;
  Array<float> single;
};

struct ClusterList {
  std::size_t own = 0, ghosts = 0;  // clusters
  Array<std::int32_t> atoms;
  Array<std::uint8_t> counts;
  std::vector<ClusterBlock> blocks;

  Array<std::uint32_t> own_first, ghost_first;  // of each row of bins, and the end
  ClusterCoordinates listed;

  [[nodiscard]] ClusterPairs view(std::size_t block) const {
    const ClusterBlock& one = blocks[block];
    return {one.first, one.last, one.begin.data(), one.pairs.data(), atoms.data(), counts.data()};
  }
  [[nodiscard]] std::size_t bytes() const;

  // Calls see(i, j) for every pair in the lists: atom i's with its neighbour j.
  template <class See>
  void each_pair(const See& see) const {
    for (const ClusterBlock& block : blocks) {
      for (std::size_t c = block.first; c < block.last; ++c) {
        for (std::uint64_t n = block.begin[c - block.first]; n < block.begin[c - block.first + 1]; ++n) {
          for (std::size_t pair = 0; pair < cluster_size * cluster_size; ++pair) {
            if ((block.pairs[n].counted >> pair & 1) == 0) continue;
            see(static_cast<std::size_t>(atoms[cluster_size * c + pair / cluster_size]),
                static_cast<std::size_t>(atoms[cluster_size * block.pairs[n].other + pair % cluster_size]));
          }
        }
      }
    }
  }
};

// What Lists::automatic is for these settings: what was measured as faster. Throws BadInput where there are no clusters.
Lists kind_of_lists(const Settings& settings);

// Clusters of all atoms, and their neighbours within `cut` of the positions that `bins` noted, which `atoms` has. The same result
// whatever the instruction set and the threads; in single precision (Precision::mixed) with what build_list says of it.
void list_clusters(const Bins& bins, const Atoms& atoms, double cut, int threads, const Kernels& kernels, Precision precision,
                   ClusterList& list);

// Takes the positions of `atoms` into `to.single` (Precision::mixed) or `to.whole`.
void gather_coordinates(const ClusterList& list, const Atoms& atoms, int threads, Precision precision, ClusterCoordinates& to);

}  // namespace md
