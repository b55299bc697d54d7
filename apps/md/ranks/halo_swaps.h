// The messages of a halo, as `Halo::make` has chosen them: which atoms go to which rank, and where those that come are
// kept. Host and agent update ghosts by them, each with messages of its own (rank_messages.h).
#pragma once

#include <cstdint>
#include <vector>

#include "md/kernels/array.h"
#include "md/ranks/rank_messages.h"

namespace md {

struct HaloSwap {
  int axis = 0, to = 0, from = 0;
  double shift = 0;                // of the coordinate along the axis, for the receiver
  std::vector<std::int32_t> sent;  // own atoms, and ghosts of earlier swaps
  std::size_t received_first = 0, received = 0;
};

class HaloSwaps {
 public:
  void clear() { swaps_.clear(); }
  void add(HaloSwap swap) { swaps_.push_back(std::move(swap)); }

  // Updates the positions of the ghosts, four values for each atom.
  void update_positions(RankMessages& messages, double* x);
  // Sends one value for each atom from the owners to their ghosts. `number` has room for all atoms.
  void update_values(RankMessages& messages, double* number);

  // As one array, and back, for `own` atoms of `all` with ghosts, on the rank of `messages`. Throws BadInput if the
  // array is invalid.
  void flatten(Array<std::uint32_t>& flat) const;
  static HaloSwaps from_flat(const std::uint32_t* flat, std::size_t words, std::size_t own, std::size_t all,
                             const RankMessages& messages);

 private:
  std::vector<HaloSwap> swaps_;
  Array<double> out_;
};

}  // namespace md
