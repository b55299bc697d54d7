// A step's forces of one rank, by an agent that exchanges with the agents of the other ranks: positions of the halo
// before the forces, and afterwards the forces of atoms that have left. The host does neither in such a step.
//
//   host    positions  exchange of atoms  sort | places   halo, new lists           | forces in the new order
//   agent   `compute`: halo  forces  forces sent after atoms | `put_in_order`
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "md/forces/eam_forces.h"
#include "md/offload/offloaded.h"
#include "md/ranks/force_exchange.h"
#include "md/ranks/halo_swaps.h"
#include "md/ranks/rank_messages.h"

namespace md {

// "exchanged_forces": inputs of "forces", x of own atoms only, halo (HaloSwaps::flatten), and for the embedded atom
// method tables (Forces::tables), which are read once; output sums. `step` names the forces that stay for
// "ordered_forces": input places; output f, a force for each of them.
struct ExchangeArguments {
  ForceArguments forces;
  Box box;
  std::uint64_t step = 0;
  std::uint32_t safe_exchange = 0, eam = 0;
};
struct OrderArguments {
  std::uint64_t step = 0;
};

class ExchangedForces {
 public:
  PairSums compute(const ExchangeArguments& arguments, std::span<const PairList> blocks, HaloSwaps& halo,
                   const double* x, std::span<const double> tables, RankMessages& messages);
  // Throws BadInput if the forces of that step are not here.
  void put_in_order(const OrderArguments& arguments, std::span<const Place> places, double* f);

 private:
  ForcesElsewhere computing_;
  std::unique_ptr<EamForces> eam_;
  ForceExchange exchange_;
  Array<double> x_, f_;
  std::uint64_t step_ = 0;  // whose forces these are; 0: none
  int rank_ = 0;
};

}  // namespace md
