// The functions that the plug-in offers, as plain arguments over flat arrays: what crosses from the program to the agent.
#pragma once

#include <cstdint>

#include "md/kernels.h"

namespace md {

// "list": inputs x (four values an atom), bins (Bins::flatten); outputs begin, mutual, neighbours.
struct ListArguments {
  std::uint64_t own = 0, ghosts = 0;
  double cut = 0;
  std::uint64_t half = 1;
};

// "forces": inputs x, begin, mutual, neighbours; outputs f, sums (energy, virial).
struct ForceArguments {
  std::uint64_t own = 0, all = 0, neighbours = 0;  // neighbours: spare ones included
  LennardJones potential;
};

// Throws BadInput where a list names an atom that is not there.
void check_list(const ForceArguments& arguments, const PairList& list);

}  // namespace md
