#include "md/lj_forces.h"

#include "md/parallel.h"

namespace md {

PairSums LjForces::compute(const NeighbourList& list, Halo& /*halo*/, bool with_sums, Atoms& atoms) {
  const int threads = static_cast<int>(list.blocks.size());
  if (precision_ == Precision::mixed) {
    single_.resize(values * atoms.all());
    in_blocks(threads, values * atoms.all(), [&](int, std::size_t first, std::size_t last) {
      for (std::size_t n = first; n < last; ++n) single_[n] = static_cast<float>(atoms.x[n]);
    });
  }
  std::vector<PairSums> parts(list.blocks.size());
  in_blocks(threads, list.blocks.size(), [&](int, std::size_t first, std::size_t last) {
    for (std::size_t block = first; block < last; ++block) {
      const PairList pairs = list.blocks[block].view();
      if (precision_ == Precision::mixed) {
        const LjMixed kernel = with_sums ? kernels_.lj_mixed_with_sums : kernels_.lj_mixed;
        parts[block] = kernel(potential_, pairs, single_.data(), atoms.f.data());
      } else {
        const LjDouble kernel = with_sums ? kernels_.lj_with_sums : kernels_.lj;
        parts[block] = kernel(potential_, pairs, atoms.x.data(), atoms.f.data());
      }
    }
  });
  PairSums sums;
  for (const PairSums& part : parts) {  // in the order of blocks: the same bits every time
    sums.energy += part.energy;
    sums.virial += part.virial;
  }
  return sums;
}

}  // namespace md
