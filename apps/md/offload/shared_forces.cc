#include "md/offload/shared_forces.h"

namespace md {

ShareArguments share_of(const OffloadShape& shape, const ShareOfAtoms& share, std::size_t from, std::uint64_t lists) {
  ShareArguments arguments;
  arguments.first = share.first - from;
  arguments.own = share.own - from;
  arguments.lists = lists;
  arguments.cut = share.cut;
  arguments.threads = static_cast<std::uint32_t>(shape.threads);
  arguments.half = share.half ? 1 : 0;
  arguments.mixed = shape.precision == Precision::mixed ? 1 : 0;
  return arguments;
}

PairSums SharedForces::compute(const ShareArguments& arguments, std::span<const std::uint32_t> bins,
                               const double* listed, const double* x, double* f) {
  const Precision precision = arguments.mixed != 0 ? Precision::mixed : Precision::whole;
  if (lists_ != arguments.lists) {
    lists_ = 0;  // until they are made
    const std::size_t ghosts = arguments.all - arguments.own;
    Bins grid = Bins::from_flat(bins.data(), bins.size(), arguments.own, ghosts);
    grid.refresh_positions(listed, arguments.own, ghosts);
    build_blocks(grid, arguments.first, arguments.own, arguments.cut, arguments.half != 0,
                 static_cast<int>(arguments.threads), choose_kernels("auto"), made_, precision);
    blocks_.clear();
    for (const NeighbourBlock& block : made_.blocks) blocks_.push_back(block.view());
    lists_ = arguments.lists;
  }
  const ForceArguments forces{arguments.own,     arguments.all,   arguments.potential,   arguments.threads,
                              arguments.threads, arguments.mixed, arguments.without_sums};
  return computing_.compute(forces, blocks_, x, f - values * arguments.first);  // kernels count atoms from 0
}

}  // namespace md
