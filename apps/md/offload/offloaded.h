// The plug-in's functions over flat arrays, and the format of data between program and agent.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "md/kernels/kernels.h"
#include "md/neighbours/neighbour_list.h"

namespace md {

// "list": inputs x (four values for each atom), bins (Bins::flatten); outputs begin, mutual, neighbours, of all own
// atoms, and count: the number of entries of `neighbours`. If that is more than `room`, neighbours is empty. A list
// made in `parts` (by as many threads) has no mutual neighbours across their edges, so it fits any blocks whose edges
// are among these.
struct ListArguments {
  std::uint64_t own = 0, ghosts = 0, room = 0;
  double cut = 0;
  std::uint32_t half = 1, single = 0, parts = 1, zero = 0;
};

// "forces": inputs x, and for each block b of lists begin<b>, mutual<b>, neighbours<b>; outputs f, sums (energy,
// virial).
struct ForceArguments {
  std::uint64_t own = 0, all = 0;
  LennardJones potential;
  std::uint32_t blocks = 1, threads = 1, mixed = 0, without_sums = 0;
};

// The number of parts in which a list for `blocks` blocks is made by that many threads: the smallest that both divide
// evenly enough.
int list_parts(int blocks, int threads);

// A coworker's parameters: its number of threads, and the form of its results.
struct OffloadShape {
  int threads = 1;  // of the coworker
  int blocks = 1;   // of lists: one for each of the host's threads
  Precision precision = Precision::whole;
};

ForceArguments force_arguments(const OffloadShape& shape, const LennardJones& potential, std::size_t own,
                               std::size_t all, std::size_t blocks);

// The blocks of a list as one: `begin` has one entry more than there are atoms; joined_neighbours returns the number of
// entries of `neighbours`.
std::size_t joined_neighbours(const NeighbourList& list);
void join_blocks(const NeighbourList& list, std::uint64_t* begin, std::int32_t* mutual, std::int32_t* neighbours);

// Throws BadInput if a block's list, with `neighbours` entries, names an atom that does not exist.
void check_list(const PairList& list, std::uint64_t neighbours, std::uint64_t all);

// Forces by several threads, each for a part of the atoms. Keeps its memory between calls.
class ForcesElsewhere {
 public:
  // `blocks` follow one another from atom 0. Writes f, four values for each own atom.
  PairSums compute(const ForceArguments& arguments, std::span<const PairList> blocks, const double* x, double* f);

 private:
  PairSums compute(const ForceArguments& arguments, const PairList& part, const double* x, double* f) const;

  Array<float> single_;
  std::vector<Array<double>> apart_;  // forces of each thread, if several share a block
};

}  // namespace md
