#include "md/forces/lj_forces.h"

#include "md/kernels/parallel.h"

namespace md {

PairSums LjForces::compute(const NeighbourList& list, Halo& /*halo*/, bool with_sums, Atoms& atoms) {
  const bool clusters = !list.clusters.blocks.empty();
  const std::size_t blocks = clusters ? list.clusters.blocks.size() : list.blocks.size();
  const int threads = static_cast<int>(blocks);
  if (precision_ == Precision::mixed) {
    single_.resize(values * atoms.all());
    in_blocks(threads, values * atoms.all(), [&](int, std::size_t first, std::size_t last) {
      for (std::size_t n = first; n < last; ++n) single_[n] = static_cast<float>(atoms.x[n]);
    });
  }
  std::vector<PairSums> parts(blocks);
  in_blocks(threads, blocks, [&](int, std::size_t first, std::size_t last) {
    for (std::size_t block = first; block < last; ++block) {
      parts[block] = clusters ? of_clusters(list.clusters.view(block), with_sums, atoms)
                              : of_pairs(list.blocks[block].view(), with_sums, atoms);
    }
  });
  PairSums sums;
  for (const PairSums& part : parts) {  // in the order of blocks: the same bits every time
    sums.energy += part.energy;
    sums.virial += part.virial;
  }
  return sums;
}

PairSums LjForces::of_pairs(const PairList& pairs, bool with_sums, Atoms& atoms) const {
  if (precision_ == Precision::mixed) {
    const LjMixed kernel = with_sums ? kernels_.lj_mixed_with_sums : kernels_.lj_mixed;
    return kernel(potential_, pairs, single_.data(), atoms.f.data());
  }
  const LjDouble kernel = with_sums ? kernels_.lj_with_sums : kernels_.lj;
  return kernel(potential_, pairs, atoms.x.data(), atoms.f.data());
}

PairSums LjForces::of_clusters(const ClusterLists& lists, bool with_sums, Atoms& atoms) const {
  if (precision_ == Precision::mixed) {
    const LjClusters<float> kernel = with_sums ? kernels_.lj_clusters_mixed_with_sums : kernels_.lj_clusters_mixed;
    return kernel(potential_, lists, single_.data(), atoms.f.data());
  }
  const LjClusters<double> kernel = with_sums ? kernels_.lj_clusters_with_sums : kernels_.lj_clusters;
  return kernel(potential_, lists, atoms.x.data(), atoms.f.data());
}

}  // namespace md
