// The forces of a rank's last atoms, by a coworker that computes them in every step beside the host, which computes the
// others. Both make the lists of their own atoms when atoms have been sorted, so lists never cross.
//
//   atoms   | of the host             | first: of the coworker       | ghosts |
//   bytes            | from: positions that the coworker needs                |
//
// Blocks of a half list are independent (neighbour_list.h): a pair of an atom here and one there is on both sides. So
// an atom's force has the bits of a host with a block for each part. The atoms before `from`, which none of the
// coworker's lists name, are left out, and the others numbered from 0.
#pragma once

#include <cstdint>
#include <span>

#include "md/offload/coworker.h"
#include "md/offload/offloaded.h"

namespace md {

// "share": inputs "bins of share" (Bins::flatten) and listed (the positions when atoms were sorted), both of the
// version `lists`, and x unless it is the same as listed; outputs f, four values for each of [first, own), and sums.
struct ShareArguments {
  std::uint64_t first = 0, own = 0, all = 0;
  std::uint64_t lists = 0;  // these are made once
  double cut = 0;           // of lists
  LennardJones potential;
  std::uint32_t threads = 1, half = 1, mixed = 0, without_sums = 0;
};

// Of `shape`'s coworker, without the own atoms before `from`. Fields that differ from step to step are left as they
// are.
ShareArguments share_of(const OffloadShape& shape, const ShareOfAtoms& share, std::size_t from, std::uint64_t lists);

class SharedForces {
 public:
  // Lists are made in as many blocks as there are threads. Throws BadInput if the bins are invalid.
  PairSums compute(const ShareArguments& arguments, std::span<const std::uint32_t> bins, const double* listed,
                   const double* x, double* f);

 private:
  std::uint64_t lists_ = 0;
  NeighbourList made_;
  std::vector<PairList> blocks_;
  ForcesElsewhere computing_;
};

}  // namespace md
