#include "md/neighbours/neighbour_list.h"

#include <algorithm>

#include "md/kernels/parallel.h"

namespace md {
namespace {

constexpr std::size_t spare = 16;  // the widest vector of indices that a kernel writes or reads beyond the end

template <class Real>
Coordinates<Real> coordinates(const std::array<Array<Real>, 3>& by_axis) {
  return {by_axis[0].data(), by_axis[1].data(), by_axis[2].data()};
}

template <class Real>
SearchSpace<Real> space_of(const Bins& bins, const std::array<Array<Real>, 3>& own,
                           const std::array<Array<Real>, 3>& ghost, double cut) {
  return {coordinates(own), coordinates(ghost), bins.ghost_index().data(), cut * cut};
}

void round_to_single(const Array<double>& from, Array<float>& to) {
  to.resize(from.size());
  for (std::size_t n = 0; n < from.size(); ++n) to[n] = static_cast<float>(from[n]);
}

void round_to_single(const Bins& bins, NeighbourList& list) {
  for (std::size_t d = 0; d < 3; ++d) {
    round_to_single(bins.noted()[d], list.own_single[d]);
    round_to_single(bins.noted_ghost()[d], list.ghost_single[d]);
  }
}

template <class Real>
void build_block(const Bins& bins, const SearchSpace<Real>& space, FindNeighbours<Real> find_neighbours, bool half,
                 NeighbourBlock& block) {
  const std::size_t atoms = block.last - block.first;
  block.begin.resize(atoms + 1);
  block.mutual.resize(atoms);
  Bins::Rows rows{};
  std::size_t written = 0;
  for (std::size_t bin = 0; bin < bins.count(); ++bin) {
    const std::size_t first = std::max<std::size_t>(bins.first_of(bin), block.first);
    const std::size_t last = std::min<std::size_t>(bins.first_of(bin + 1), block.last);
    if (first >= last) continue;
    const int count = bins.rows_around(bin, bin, rows);
    std::size_t most = spare;
    for (int r = 0; r < count; ++r) {
      const BinRow& row = rows[static_cast<std::size_t>(r)];
      most += row.last - row.first + row.ghost_last - row.ghost_first;
    }
    for (std::size_t i = first; i < last; ++i) {
      if (block.neighbours.size() < written + most) block.neighbours.resize(written + most);
      const SearchRange range{rows.data(), count, static_cast<std::uint32_t>(half ? block.first : i),
                              static_cast<std::uint32_t>(half ? block.last : i + 1)};
      const Found found =
          find_neighbours(space, range, static_cast<std::uint32_t>(i), block.neighbours.data() + written);
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
  for (const NeighbourBlock& block : blocks)
    sum += 8 * block.begin.size() + 4 * block.mutual.size() + 4 * block.neighbours.size();
  return sum + clusters.bytes();
}

void build_list(const Bins& bins, std::size_t own, double cut, bool half, int threads, const Kernels& kernels,
                NeighbourList& list, Precision precision) {
  build_blocks(bins, 0, own, cut, half, threads, kernels, list, precision);
}

void build_blocks(const Bins& bins, std::size_t first_of_all, std::size_t last_of_all, double cut, bool half,
                  int threads, const Kernels& kernels, NeighbourList& list, Precision precision) {
  const bool single = precision == Precision::mixed;
  if (single) round_to_single(bins, list);
  list.blocks.resize(static_cast<std::size_t>(threads));
  in_blocks(threads, last_of_all - first_of_all, [&](int block, std::size_t first, std::size_t last) {
    NeighbourBlock& one = list.blocks[static_cast<std::size_t>(block)];
    one.borrowed.reset();
    one.first = first_of_all + first;
    one.last = first_of_all + last;
    one.neighbours.resize(0);
    if (single)
      build_block<float>(bins, space_of(bins, list.own_single, list.ghost_single, cut), kernels.find_neighbours_single,
                         half, one);
    else
      build_block<double>(bins, space_of(bins, bins.noted(), bins.noted_ghost(), cut), kernels.find_neighbours, half,
                          one);
  });
}

void build_clusters(const Bins& bins, double cut, int threads, const Kernels& kernels, NeighbourList& list,
                    Precision precision) {
  make_clusters(bins, bins.noted()[0].data(), list.clusters);
  if (precision == Precision::mixed) {
    round_to_single(bins, list);
    list_clusters(bins, space_of(bins, list.own_single, list.ghost_single, cut), kernels.find_of_cluster_single,
                  threads, list.clusters);
  } else {
    list_clusters(bins, space_of(bins, bins.noted(), bins.noted_ghost(), cut), kernels.find_of_cluster, threads,
                  list.clusters);
  }
}

}  // namespace md
