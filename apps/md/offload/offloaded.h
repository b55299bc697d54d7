// The functions that the plug-in offers, over flat arrays: what crosses from the program to the agent, and what is done
// there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "md/kernels/kernels.h"
#include "md/neighbours/neighbour_list.h"

namespace md {

// "list": inputs x (four values an atom), bins (Bins::flatten); outputs begin, mutual, neighbours, of all own atoms. A
// list made in `parts` (by as many threads) has no mutual neighbours across their edges, so any blocks whose edges are
// among these may use it.
struct ListArguments {
  std::uint64_t own = 0, ghosts = 0;
  double cut = 0;
  std::uint32_t half = 1, single = 0, parts = 1, zero = 0;
};

// "forces": inputs x, and of each block b of lists begin<b>, mutual<b>, neighbours<b>; outputs f, sums (energy,
// virial).
struct ForceArguments {
  std::uint64_t own = 0, all = 0;
  LennardJones potential;
  std::uint32_t blocks = 1, threads = 1, mixed = 0, zero = 0;
};

// Of how many parts a list for `blocks` blocks is made by so many threads: the least that both divide evenly enough.
int list_parts(int blocks, int threads);

// What a coworker is told once: how many threads it may have, and what its results are like.
struct OffloadShape {
  int threads = 1;  // of the coworker
  int blocks = 1;   // of lists: the host's threads
  Precision precision = Precision::whole;
};

// Blocks of a list as one: `begin` has one entry more than there are atoms; entries of `neighbours` as
// joined_neighbours says.
std::size_t joined_neighbours(const NeighbourList& list);
void join_blocks(const NeighbourList& list, std::uint64_t* begin, std::int32_t* mutual, std::int32_t* neighbours);

// Throws BadInput where a block's list, of which `neighbours` entries are there, names an atom that is not there.
void check_list(const PairList& list, std::uint64_t neighbours, std::uint64_t all);

// Forces by several threads, each a part of the atoms. Keeps its memory from call to call.
class ForcesElsewhere {
 public:
  // `blocks` follow one another from atom 0. Writes f, four values of each own atom.
  PairSums compute(const ForceArguments& arguments, std::span<const PairList> blocks, const double* x, double* f);

 private:
  PairSums compute(const ForceArguments& arguments, const PairList& part, const double* x, double* f) const;

  Array<float> single_;
  std::vector<Array<double>> apart_;  // forces of each thread, where several share a block
};

}  // namespace md
