#include "md/neighbours/cluster_list.h"

#include <algorithm>

#include "md/files/bad_input.h"
#include "md/kernels/parallel.h"

namespace md {
namespace {

constexpr std::size_t spare_width = 16;  // the widest vector that a kernel writes beyond the end

template <class Real>
void list_block(const Bins& bins, const SearchSpace<Real>& space, FindOfCluster<Real> find, const ClusterList& list,
                ClusterBlock& block) {
  block.begin.resize(block.last - block.first + 1);
  Bins::Rows around{};
  std::size_t written = 0;
  for (std::size_t row = 0; row + 1 < list.first_of_row.size(); ++row) {
    const std::size_t first = std::max<std::size_t>(list.first_of_row[row], block.first);
    const std::size_t last = std::min<std::size_t>(list.first_of_row[row + 1], block.last);
    // Atoms are ordered by x within bins too: a cluster's first and last one give the bins that it covers.
    std::size_t low = row * bins.along_x();
    const std::size_t begin = bins.first_of(low);
    for (std::size_t c = first; c < last; ++c) {
      const std::size_t place = begin + cluster_size * (c - list.first_of_row[row]);
      while (bins.first_of(low + 1) <= place) ++low;
      std::size_t high = low;
      while (bins.first_of(high + 1) < place + list.counts[c]) ++high;
      const int count = bins.rows_around(low, high, around);
      std::size_t most = 2 * spare_width;
      for (int r = 0; r < count; ++r) {
        const BinRow& one = around[static_cast<std::size_t>(r)];
        most += one.last - one.first + one.ghost_last - one.ghost_first;
      }
      if (block.neighbours.size() < written + most) {
        block.neighbours.resize(written + most);
        block.near.resize(written + most);
      }
      block.begin[c - block.first] = written;
      std::int32_t* const neighbours = block.neighbours.data() + written;
      std::uint8_t* const near = block.near.data() + written;
      const std::size_t found =
          find(space, around.data(), count, {list.atoms.data() + cluster_size * c, list.counts[c], neighbours, near});
      const std::size_t filled = (found + cluster_unit - 1) / cluster_unit * cluster_unit;
      std::fill(neighbours + found, neighbours + filled, 0);
      std::fill(near + found, near + filled, std::uint8_t{0});
      written += filled;
    }
  }
  block.begin[block.last - block.first] = written;
  block.neighbours.resize(written);
  block.near.resize(written);
}

}  // namespace

std::size_t ClusterList::bytes() const {
  std::size_t sum = 4 * atoms.size() + counts.size();
  for (const ClusterBlock& block : blocks) sum += 8 * block.begin.size() + 5 * block.neighbours.size();
  return sum;
}

Lists kind_of_lists(const Settings& settings) {
  if (settings.lists == Lists::clusters && settings.potential != Potential::lj) {
    throw BadInput("--lists clusters supports Lennard-Jones only; EAM needs --lists pairs");
  }
  if (settings.lists == Lists::clusters && settings.offload != Offload::none) {
    throw BadInput("--lists clusters: an agent works with lists of pairs; --offload needs --lists pairs");
  }
  if (settings.lists != Lists::automatic) return settings.lists;
  const bool faster = settings.precision == Precision::mixed && settings.potential == Potential::lj;
  return faster && settings.offload == Offload::none ? Lists::clusters : Lists::pairs;
}

void make_clusters(const Bins& bins, const double* x, ClusterList& list) {
  const std::size_t rows = bins.count() / bins.along_x();
  list.atoms.resize(0);
  list.counts.resize(0);
  list.first_of_row.resize(rows + 1);
  Array<std::int32_t> in_row;
  for (std::size_t row = 0; row < rows; ++row) {
    list.first_of_row[row] = static_cast<std::uint32_t>(list.counts.size());
    const std::size_t first = bins.first_of(row * bins.along_x()), last = bins.first_of((row + 1) * bins.along_x());
    in_row.resize(last - first);
    // Bins are already ordered by x, so few atoms move, and not far.
    for (std::size_t k = 0; k < in_row.size(); ++k) {
      const auto atom = static_cast<std::int32_t>(first + k);
      std::size_t to = k;
      for (; to > 0 && x[in_row[to - 1]] > x[atom]; --to) in_row[to] = in_row[to - 1];
      in_row[to] = atom;
    }
    for (std::size_t at = 0; at < in_row.size(); at += cluster_size) {
      const std::size_t count = std::min(cluster_size, in_row.size() - at);
      for (std::size_t k = 0; k < cluster_size; ++k) list.atoms.append(in_row[k < count ? at + k : at]);
      list.counts.append(static_cast<std::uint8_t>(count));
    }
  }
  list.first_of_row[rows] = static_cast<std::uint32_t>(list.counts.size());
}

template <class Real>
void list_clusters(const Bins& bins, const SearchSpace<Real>& space, FindOfCluster<Real> find, int threads,
                   ClusterList& list) {
  list.blocks.resize(static_cast<std::size_t>(threads));
  in_blocks(threads, list.counts.size(), [&](int block, std::size_t first, std::size_t last) {
    ClusterBlock& one = list.blocks[static_cast<std::size_t>(block)];
    one.first = first;
    one.last = last;
    list_block(bins, space, find, list, one);
  });
}

template void list_clusters(const Bins&, const SearchSpace<double>&, FindOfCluster<double>, int, ClusterList&);
template void list_clusters(const Bins&, const SearchSpace<float>&, FindOfCluster<float>, int, ClusterList&);

}  // namespace md
