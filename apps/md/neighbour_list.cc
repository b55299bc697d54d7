#include "md/neighbour_list.h"

#include <algorithm>

#include "md/parallel.h"

namespace md {
namespace {

constexpr std::size_t spare = 16;  // the widest vector of indices that a kernel writes or reads beyond the end

void build_block(const Bins& bins, double cut, bool half, const Kernels& kernels, NeighbourBlock& block) {
  const std::size_t atoms = block.last - block.first;
  block.begin.resize(atoms + 1);
  block.mutual.resize(atoms);
  Bins::Rows rows{};
  SearchSpace space{{bins.noted(0).data(), bins.noted(1).data(), bins.noted(2).data()},
                    {bins.noted_ghost(0).data(), bins.noted_ghost(1).data(), bins.noted_ghost(2).data()},
                    bins.ghost_index().data(), cut * cut};
  std::size_t written = 0;
  for (std::size_t bin = 0; bin < bins.count(); ++bin) {
    const std::size_t first = std::max<std::size_t>(bins.first_of(bin), block.first);
    const std::size_t last = std::min<std::size_t>(bins.first_of(bin + 1), block.last);
    if (first >= last) continue;
    const int count = bins.rows_around(bin, rows);
    std::size_t most = spare;
    for (int r = 0; r < count; ++r) {
      const BinRow& row = rows[static_cast<std::size_t>(r)];
      most += row.last - row.first + row.ghost_last - row.ghost_first;
    }
    for (std::size_t i = first; i < last; ++i) {
      if (block.neighbours.size() < written + most) block.neighbours.resize(written + most);
      const SearchRange range{rows.data(), count, static_cast<std::uint32_t>(half ? block.first : i),
                              static_cast<std::uint32_t>(half ? block.last : i + 1)};
      const Found found = kernels.find_neighbours(space, range, static_cast<std::uint32_t>(i), block.neighbours.data() + written);
      block.begin[i - block.first] = written;
      block.mutual[i - block.first] = found.mutual;
      written += static_cast<std::size_t>(found.mutual + found.other);
    }
  }
  block.begin[atoms] = written;
  block.neighbours.resize(written + spare);
  std::fill_n(block.neighbours.begin() + written, spare, 0);
}

}  // namespace

std::size_t NeighbourList::bytes() const {
  std::size_t sum = 0;
  for (const NeighbourBlock& block : blocks) sum += 8 * block.begin.size() + 4 * block.mutual.size() + 4 * block.neighbours.size();
  return sum;
}

void build_list(const Bins& bins, std::size_t own, double cut, bool half, int threads, const Kernels& kernels, NeighbourList& list) {
  list.blocks.resize(static_cast<std::size_t>(threads));
  in_blocks(threads, own, [&](int block, std::size_t first, std::size_t last) {
    NeighbourBlock& one = list.blocks[static_cast<std::size_t>(block)];
    one.borrowed.reset();
    one.first = first;
    one.last = last;
    one.neighbours.resize(0);
    build_block(bins, cut, half, kernels, one);
  });
}

}  // namespace md
