#include "md/cluster_list.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "md/bad_input.h"
#include "md/parallel.h"

namespace md {
namespace {

constexpr std::size_t axes = 3;

// Atoms of one row of bins, in the order of x, as clusters. Bins lie in that order already: few atoms move, and not far.
void add_clusters(Array<std::int32_t>& row, const Atoms& atoms, ClusterList& list) {
  const auto x = [&](std::int32_t i) { return atoms.x[values * static_cast<std::size_t>(i)]; };
  for (std::size_t k = 1; k < row.size(); ++k) {
    const std::int32_t one = row[k];
    std::size_t to = k;
    for (; to > 0 && x(row[to - 1]) > x(one); --to) row[to] = row[to - 1];
    row[to] = one;
  }
  for (std::size_t first = 0; first < row.size(); first += cluster_size) {
    const std::size_t count = std::min(cluster_size, row.size() - first), at = list.atoms.size();
    list.atoms.resize(at + cluster_size);
    for (std::size_t k = 0; k < cluster_size; ++k) list.atoms[at + k] = row[k < count ? first + k : first];
    list.counts.append(static_cast<std::uint8_t>(count));
  }
}

void make_clusters(const Bins& bins, const Atoms& atoms, ClusterList& list) {
  const auto rows = static_cast<std::size_t>(bins.row_counts()[0]) * static_cast<std::size_t>(bins.row_counts()[1]);
  list.atoms.resize(0);
  list.counts.resize(0);
  list.own_first.resize(rows + 1);
  list.ghost_first.resize(rows + 1);
  Array<std::int32_t> in_row;
  for (std::size_t row = 0; row < rows; ++row) {
    list.own_first[row] = static_cast<std::uint32_t>(list.counts.size());
    const BinRow of = bins.row(row);
    in_row.resize(of.last - of.first);
    for (std::uint32_t k = 0; k < in_row.size(); ++k) in_row[k] = static_cast<std::int32_t>(of.first + k);
    add_clusters(in_row, atoms, list);
  }
  list.own = list.counts.size();
  list.own_first[rows] = static_cast<std::uint32_t>(list.own);
  for (std::size_t row = 0; row < rows; ++row) {
    list.ghost_first[row] = static_cast<std::uint32_t>(list.counts.size());
    const BinRow of = bins.row(row);
    in_row.resize(of.ghost_last - of.ghost_first);
    for (std::uint32_t k = 0; k < in_row.size(); ++k) in_row[k] = bins.ghost_index()[of.ghost_first + k];
    add_clusters(in_row, atoms, list);
  }
  list.ghost_first[rows] = static_cast<std::uint32_t>(list.counts.size());
  list.ghosts = list.counts.size() - list.own;
}

template <class Real>
void gather(const ClusterList& list, const Atoms& atoms, int threads, Array<Real>& to) {
  const std::size_t clusters = list.own + list.ghosts;
  to.resize(axes * cluster_size * clusters);
  in_blocks(threads, clusters, [&](int, std::size_t first, std::size_t last) {
    const double* const x = atoms.x.data();
    for (std::size_t c = first; c < last; ++c) {
      const std::int32_t* const atom = list.atoms.data() + cluster_size * c;
      Real* const out = to.data() + axes * cluster_size * c;
      for (std::size_t k = 0; k < cluster_size; ++k) {
        const double* const at = x + values * static_cast<std::size_t>(atom[k]);
        for (std::size_t d = 0; d < axes; ++d) out[cluster_size * d + k] = static_cast<Real>(at[d]);
      }
    }
  });
}

// A box around clusters, so that most of those that are too far are never looked at.
struct Extent {
  std::array<double, axes> low, high;

  [[nodiscard]] double gap(const Extent& other, std::size_t d) const {
    return std::max(0.0, std::max(low[d] - other.high[d], other.low[d] - high[d]));
  }
};

template <class Real>
Extent extent_of(const Real* x) {
  Extent extent{};
  for (std::size_t d = 0; d < axes; ++d) {
    const auto [low, high] = std::minmax_element(x + cluster_size * d, x + cluster_size * (d + 1));
    extent.low[d] = static_cast<double>(*low);
    extent.high[d] = static_cast<double>(*high);
  }
  return extent;
}

// The neighbours of some clusters. A row's clusters are in the order of x, so those that may be near one of them are consecutive,
// and begin no further to the left than those of the cluster before it.
template <class Real>
class Searcher {
 public:
  Searcher(const Bins& bins, const ClusterList& list, const Array<Real>& x, double cut, FindClusters<Real> find)
      : list_(list), find_(find), cut_(cut), along_y_(bins.row_counts()[0]), space_{x.data(), list.counts.data(), static_cast<Real>(cut * cut)} {
    extents_.resize(list.counts.size());
    for (std::size_t c = 0; c < extents_.size(); ++c) extents_[c] = extent_of(x.data() + axes * cluster_size * c);
    const std::size_t rows = list.own_first.size() - 1;
    for (const Array<std::uint32_t>* of : {&list.own_first, &list.ghost_first}) {
      for (std::size_t row = 0; row < rows; ++row) rows_.push_back(of_row((*of)[row], (*of)[row + 1]));
    }
  }

  void search(ClusterBlock& block) const {
    block.begin.resize(block.last - block.first + 1);
    std::size_t written = 0;
    const std::size_t rows = list_.own_first.size() - 1;
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t first = std::max<std::size_t>(list_.own_first[row], block.first);
      const std::size_t last = std::min<std::size_t>(list_.own_first[row + 1], block.last);
      if (first >= last) continue;
      Around around = rows_around(row);
      for (std::size_t c = first; c < last; ++c) {
        Ranges ranges;
        std::size_t count = 0;
        const std::size_t most = choose_ranges(extents_[c], around, ranges, count) + 1;
        if (block.pairs.size() < written + most) block.pairs.resize(written + most);
        block.begin[c - block.first] = written;
        const ClusterPair* const end =
            find_(space_, ranges.data(), count, static_cast<std::uint32_t>(c), block.pairs.data() + written);
        written = static_cast<std::size_t>(end - block.pairs.data());
      }
    }
    block.begin[block.last - block.first] = written;
    block.pairs.resize(written);
  }

 private:
  static constexpr std::size_t rows_max = std::size_t{2} * (2 * Bins::reach + 1) * (2 * Bins::reach + 1);
  using Ranges = std::array<ClusterRange, rows_max>;
  struct Row {
    std::uint32_t first, last;
    Extent extent;
  };
  struct Around {
    std::array<Row, rows_max> rows;
    std::size_t count = 0;
  };

  [[nodiscard]] Row of_row(std::uint32_t first, std::uint32_t last) const {
    constexpr double far = std::numeric_limits<double>::infinity();
    Row row{first, last, {{far, far, far}, {-far, -far, -far}}};
    for (std::uint32_t c = first; c < last; ++c) {
      for (std::size_t d = 0; d < axes; ++d) {
        row.extent.low[d] = std::min(row.extent.low[d], extents_[c].low[d]);
        row.extent.high[d] = std::max(row.extent.high[d], extents_[c].high[d]);
      }
    }
    return row;
  }

  // Own clusters lie in inner rows only: rows around them are within the grid.
  [[nodiscard]] Around rows_around(std::size_t row) const {
    Around around;
    for (std::size_t kind = 0; kind < 2; ++kind) {
      for (int dz = -Bins::reach; dz <= Bins::reach; ++dz) {
        for (int dy = -Bins::reach; dy <= Bins::reach; ++dy) {
          const auto other = static_cast<std::ptrdiff_t>(row) + dy + static_cast<std::ptrdiff_t>(along_y_) * dz;
          const Row& one = rows_[kind * (list_.own_first.size() - 1) + static_cast<std::size_t>(other)];
          if (one.first < one.last) around.rows[around.count++] = one;
        }
      }
    }
    return around;
  }

  // Returns how many clusters there are in the ranges. Moves the beginnings of `around` on to where this cluster's neighbours begin.
  std::size_t choose_ranges(const Extent& own, Around& around, Ranges& ranges, std::size_t& count) const {
    std::size_t clusters = 0;
    for (std::size_t r = 0; r < around.count; ++r) {
      Row& row = around.rows[r];
      const double reach = cut_ * (1 + slack);
      while (row.first < row.last && extents_[row.first].high[0] < own.low[0] - reach) ++row.first;
      const double y = own.gap(row.extent, 1), z = own.gap(row.extent, 2), left = reach * reach - y * y - z * z;
      if (left < 0) continue;
      const double along = std::sqrt(left);
      std::uint32_t first = row.first;
      while (first < row.last && extents_[first].high[0] < own.low[0] - along) ++first;
      std::uint32_t last = first;
      while (last < row.last && extents_[last].low[0] <= own.high[0] + along) ++last;
      if (first == last) continue;
      ranges[count++] = {first, last};
      clusters += last - first;
    }
    return clusters;
  }

  static constexpr double slack = 1e-6;  // rounding may leave out nobody who is near

  const ClusterList& list_;
  FindClusters<Real> find_;
  double cut_;
  int along_y_;
  ClusterSpace<Real> space_;
  Array<Extent> extents_;
  std::vector<Row> rows_;
};

template <class Real>
void search_all(const Bins& bins, const Array<Real>& x, double cut, int threads, FindClusters<Real> find, ClusterList& list) {
  const Searcher<Real> searcher(bins, list, x, cut, find);
  list.blocks.resize(static_cast<std::size_t>(threads));
  in_blocks(threads, list.own, [&](int block, std::size_t first, std::size_t last) {
    ClusterBlock& one = list.blocks[static_cast<std::size_t>(block)];
    one.first = first;
    one.last = last;
    searcher.search(one);
  });
}

}  // namespace

std::size_t ClusterList::bytes() const {
  std::size_t sum = 4 * atoms.size() + counts.size();
  for (const ClusterBlock& block : blocks) sum += 8 * block.begin.size() + sizeof(ClusterPair) * block.pairs.size();
  return sum;
}

Lists kind_of_lists(const Settings& settings) {
  if (settings.lists == Lists::clusters && settings.potential != Potential::lj) {
    throw BadInput("--lists clusters is there for Lennard-Jones; EAM takes --lists pairs");
  }
  if (settings.lists == Lists::clusters && settings.offload != Offload::none) {
    throw BadInput("--lists clusters: an agent works with lists of pairs; --offload takes --lists pairs");
  }
  if (settings.lists != Lists::automatic) return settings.lists;
  const bool clusters = settings.precision == Precision::mixed && settings.potential == Potential::lj && settings.offload == Offload::none;
  return clusters ? Lists::clusters : Lists::pairs;
}

void gather_coordinates(const ClusterList& list, const Atoms& atoms, int threads, Precision precision, ClusterCoordinates& to) {
  if (precision == Precision::mixed) gather(list, atoms, threads, to.single);
  else gather(list, atoms, threads, to.whole);
}

void list_clusters(const Bins& bins, const Atoms& atoms, double cut, int threads, const Kernels& kernels, Precision precision,
                   ClusterList& list) {
  make_clusters(bins, atoms, list);
  gather_coordinates(list, atoms, threads, precision, list.listed);
  if (precision == Precision::mixed) search_all<float>(bins, list.listed.single, cut, threads, kernels.find_clusters_single, list);
  else search_all<double>(bins, list.listed.whole, cut, threads, kernels.find_clusters, list);
}

}  // namespace md
