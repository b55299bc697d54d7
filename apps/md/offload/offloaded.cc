#include "md/offload/offloaded.h"

#include <algorithm>

#include "md/files/bad_input.h"
#include "md/kernels/parallel.h"

namespace md {
namespace {

constexpr std::size_t spare = 16;  // readable entries beyond the last neighbour

// The atoms [first, last) of a block.
PairList part_of(const PairList& block, std::size_t first, std::size_t last) {
  return {first, last, block.begin + (first - block.first), block.mutual + (first - block.first), block.neighbours};
}

void add(const PairSums& one, PairSums& sum) {
  sum.energy += one.energy;
  sum.virial += one.virial;
}

}  // namespace

int list_parts(int blocks, int threads) { return blocks * ((std::max(1, threads) + blocks - 1) / blocks); }

ForceArguments force_arguments(const OffloadShape& shape, const LennardJones& potential, std::size_t own,
                               std::size_t all, std::size_t blocks) {
  return {own,
          all,
          potential,
          static_cast<std::uint32_t>(blocks),
          static_cast<std::uint32_t>(shape.threads),
          shape.precision == Precision::mixed ? 1U : 0U,
          0};
}

std::size_t joined_neighbours(const NeighbourList& list) {
  std::size_t count = spare;
  for (const NeighbourBlock& block : list.blocks) count += block.begin[block.last - block.first];
  return count;
}

void join_blocks(const NeighbourList& list, std::uint64_t* begin, std::int32_t* mutual, std::int32_t* neighbours) {
  std::size_t written = 0;
  for (const NeighbourBlock& block : list.blocks) {
    const std::size_t atoms = block.last - block.first, count = block.begin[atoms];
    for (std::size_t i = 0; i <= atoms; ++i) begin[block.first + i] = written + block.begin[i];
    std::copy_n(block.mutual.data(), atoms, mutual + block.first);
    std::copy_n(block.neighbours.data(), count, neighbours + written);
    written += count;
  }
  std::fill_n(neighbours + written, spare, 0);
}

void check_list(const PairList& list, std::uint64_t neighbours, std::uint64_t all) {
  const std::size_t atoms = list.last - list.first;
  const std::uint64_t last = list.begin[atoms];
  if (list.begin[0] != 0 || neighbours < spare || last > neighbours - spare) throw BadInput("a list cut short");
  for (std::size_t i = 0; i < atoms; ++i) {
    const std::uint64_t begin = list.begin[i], end = list.begin[i + 1];
    if (begin > end || end > last || list.mutual[i] < 0 || static_cast<std::uint64_t>(list.mutual[i]) > end - begin)
      throw BadInput("a list out of order");
    for (std::uint64_t k = begin; k < end; ++k) {
      const auto j = static_cast<std::uint64_t>(list.neighbours[k]);
      const bool mutual = k - begin < static_cast<std::uint64_t>(list.mutual[i]);
      if (list.neighbours[k] < 0 || j >= (mutual ? list.last : all) || (mutual && j < list.first))
        throw BadInput("a neighbour that does not exist");
    }
  }
  if (atoms == 0) return;  // nothing is read, and there may be no atom that the spare entries could name
  for (std::uint64_t k = last; k < last + spare; ++k) {
    if (list.neighbours[k] < 0 || static_cast<std::uint64_t>(list.neighbours[k]) >= all)
      throw BadInput("a neighbour that does not exist");
  }
}

PairSums ForcesElsewhere::compute(const ForceArguments& arguments, const PairList& part, const double* x,
                                  double* f) const {
  const Kernels& kernels = choose_kernels("auto");
  const bool sums = arguments.without_sums == 0;
  if (arguments.mixed != 0) {
    const LjMixed kernel = sums ? kernels.lj_mixed_with_sums : kernels.lj_mixed;
    return kernel(arguments.potential, part, single_.data(), f);
  }
  const LjDouble kernel = sums ? kernels.lj_with_sums : kernels.lj;
  return kernel(arguments.potential, part, x, f);
}

PairSums ForcesElsewhere::compute(const ForceArguments& arguments, std::span<const PairList> blocks, const double* x,
                                  double* f) {
  const auto parts = list_parts(static_cast<int>(blocks.size()), static_cast<int>(arguments.threads));
  const auto each = static_cast<std::size_t>(parts) / blocks.size();  // parts in each block
  const int threads = std::min(static_cast<int>(arguments.threads), parts);
  if (arguments.mixed != 0) {
    single_.resize(values * arguments.all);
    in_blocks(threads, values * arguments.all, [&](int, std::size_t first, std::size_t last) {
      for (std::size_t n = first; n < last; ++n) single_[n] = static_cast<float>(x[n]);
    });
  }
  std::vector<PairSums> sums(static_cast<std::size_t>(parts));
  if (each == 1) {
    in_blocks(threads, blocks.size(), [&](int, std::size_t first, std::size_t last) {
      for (std::size_t block = first; block < last; ++block) sums[block] = compute(arguments, blocks[block], x, f);
    });
  } else {
    // Mutual neighbours lie anywhere in a block: its threads write to separate forces, which are then added up.
    apart_.resize(static_cast<std::size_t>(parts));
    in_blocks(threads, static_cast<std::size_t>(parts), [&](int, std::size_t first, std::size_t last) {
      for (std::size_t part = first; part < last; ++part) {
        const PairList& block = blocks[part / each];
        const std::size_t atoms = block.last - block.first, k = part % each;
        Array<double>& mine = apart_[part];
        mine.resize(values * block.last);
        std::fill(mine.begin() + values * block.first, mine.end(), 0);
        const std::size_t from = block.first + atoms * k / each, to = block.first + atoms * (k + 1) / each;
        sums[part] = compute(arguments, part_of(block, from, to), x, mine.data());
      }
    });
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const std::size_t from = values * blocks[b].first;
      in_blocks(threads, values * (blocks[b].last - blocks[b].first), [&](int, std::size_t first, std::size_t last) {
        for (std::size_t n = first; n < last; ++n) {
          double sum = 0;
          for (std::size_t k = 0; k < each; ++k) sum += apart_[b * each + k][from + n];
          f[from + n] = sum;
        }
      });
    }
  }
  PairSums all;
  for (const PairSums& one : sums) add(one, all);
  return all;
}

}  // namespace md
