#include "md/neighbours/bins.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "md/files/bad_input.h"

namespace md {
namespace {

// Turns counts into the position of each bin's first element.
void add_up(Array<std::uint32_t>& counts) {
  std::uint32_t sum = 0;
  for (std::uint32_t& entry : counts) {
    const std::uint32_t here = entry;
    entry = sum;
    sum += here;
  }
}

template <class T, std::size_t width>
void reorder(Array<T>& array, const Array<std::uint32_t>& target, Array<double>& scratch) {
  const std::size_t n = target.size();
  scratch.resize((n * width * sizeof(T) + sizeof(double) - 1) / sizeof(double));
  auto* moved = reinterpret_cast<T*>(scratch.data());
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t d = 0; d < width; ++d) moved[width * target[i] + d] = array[width * i + d];
  }
  if (n > 0) std::memcpy(array.data(), moved, n * width * sizeof(T));
}

}  // namespace

Bins::Bins(const Box& own, double cut) {
  cells_ = 1;
  for (std::size_t d = 0; d < 3; ++d) {
    const double length = own.length(static_cast<int>(d));
    const int inside = std::max(1, static_cast<int>(length / (cut / reach)));
    const double width = std::max(length / inside, cut / reach);
    counts_[d] = inside + 2 * reach;
    per_length_[d] = 1 / width;
    low_[d] = own.low[d] - reach * width;
    cells_ *= static_cast<std::size_t>(counts_[d]);
  }
}

std::uint32_t Bins::bin_of(const double* x) const {
  std::array<int, 3> at{};
  for (std::size_t d = 0; d < 3; ++d) {
    at[d] = std::clamp(static_cast<int>((x[d] - low_[d]) * per_length_[d]), 0, counts_[d] - 1);
  }
  return static_cast<std::uint32_t>(at[0] + counts_[0] * (at[1] + counts_[1] * at[2]));
}

void Bins::sort(Atoms& atoms, Array<std::int32_t>* moved_from) {
  own_first_.resize(cells_ + 1);
  std::fill(own_first_.begin(), own_first_.end(), 0);
  bin_.resize(atoms.own);
  target_.resize(atoms.own);
  // Own atoms are put into inner bins even if rounding says otherwise: their rows of five bins must not leave the grid.
  for (std::size_t i = 0; i < atoms.own; ++i) {
    const double* x = atoms.x.data() + values * i;
    std::array<int, 3> at{};
    for (std::size_t d = 0; d < 3; ++d) {
      at[d] = std::clamp(static_cast<int>((x[d] - low_[d]) * per_length_[d]), reach, counts_[d] - 1 - reach);
    }
    bin_[i] = static_cast<std::uint32_t>(at[0] + counts_[0] * (at[1] + counts_[1] * at[2]));
    ++own_first_[bin_[i]];
  }
  add_up(own_first_);
  for (std::size_t i = 0; i < atoms.own; ++i) target_[i] = own_first_[bin_[i]]++;
  for (std::size_t bin = cells_; bin > 0; --bin) own_first_[bin] = own_first_[bin - 1];
  own_first_[0] = 0;
  if (moved_from != nullptr) {
    moved_from->resize(atoms.own);
    for (std::size_t i = 0; i < atoms.own; ++i) (*moved_from)[target_[i]] = static_cast<std::int32_t>(i);
  }
  reorder<double, values>(atoms.x, target_, scratch_);
  reorder<double, values>(atoms.v, target_, scratch_);
  reorder<double, values>(atoms.f, target_, scratch_);
  reorder<std::int32_t, 1>(atoms.id, target_, scratch_);
  reorder<std::uint8_t, 1>(atoms.type, target_, scratch_);
}

void Bins::note_positions(const Atoms& atoms) {
  ghost_index_.resize(atoms.ghosts + 16);
  std::fill(ghost_index_.begin(), ghost_index_.end(), 0);
  ghost_first_.resize(cells_ + 1);
  std::fill(ghost_first_.begin(), ghost_first_.end(), 0);
  bin_.resize(atoms.ghosts);
  for (std::size_t g = 0; g < atoms.ghosts; ++g) {
    bin_[g] = bin_of(atoms.x.data() + values * (atoms.own + g));
    ++ghost_first_[bin_[g]];
  }
  add_up(ghost_first_);
  for (std::size_t g = 0; g < atoms.ghosts; ++g)
    ghost_index_[ghost_first_[bin_[g]]++] = static_cast<std::int32_t>(atoms.own + g);
  for (std::size_t bin = cells_; bin > 0; --bin) ghost_first_[bin] = ghost_first_[bin - 1];
  ghost_first_[0] = 0;
  refresh_positions(atoms.x.data(), atoms.own, atoms.ghosts);
}

void Bins::refresh_positions(const double* x, std::size_t own, std::size_t ghosts) {
  constexpr std::size_t spare = 16;  // vectors are loaded whole
  for (std::size_t d = 0; d < 3; ++d) {
    own_position_[d].resize(own + spare);
    ghost_position_[d].resize(ghosts + spare);
    double* to = own_position_[d].data();
    for (std::size_t i = 0; i < own; ++i) to[i] = x[values * i + d];
    for (std::size_t g = 0; g < ghosts; ++g) {
      ghost_position_[d][g] = x[values * static_cast<std::size_t>(ghost_index_[g]) + d];
    }
    std::fill_n(to + own, spare, 0);
    std::fill_n(ghost_position_[d].begin() + ghosts, spare, 0);
  }
}

void Bins::flatten(std::size_t own, Array<std::uint32_t>& flat, std::size_t from) const {
  flat.resize(0);
  for (const int count : counts_) flat.append(static_cast<std::uint32_t>(count));
  const std::size_t ghosts = ghost_index_.size() - 16;
  flat.append(static_cast<std::uint32_t>(own - from));
  flat.append(static_cast<std::uint32_t>(ghosts));
  const auto add = [&flat](const std::uint32_t* words, std::size_t count) {
    const std::size_t before = flat.size();
    flat.resize(before + count);
    std::memcpy(flat.data() + before, words, 4 * count);
  };
  const std::size_t head = flat.size();
  add(own_first_.data(), cells_ + 1);
  add(ghost_first_.data(), cells_ + 1);
  const std::size_t named = flat.size();
  add(reinterpret_cast<const std::uint32_t*>(ghost_index_.data()), ghosts);
  const auto left_out = static_cast<std::uint32_t>(from);
  if (left_out == 0) return;
  for (std::size_t bin = 0; bin <= cells_; ++bin) flat[head + bin] = std::max(flat[head + bin], left_out) - left_out;
  for (std::size_t g = 0; g < ghosts; ++g) flat[named + g] -= left_out;
}

Bins Bins::from_flat(const std::uint32_t* flat, std::size_t words, std::size_t own, std::size_t ghosts) {
  Bins bins;
  constexpr std::size_t head = 5;
  if (words < head || flat[3] != own || flat[4] != ghosts) throw BadInput("bins of other atoms");
  bins.cells_ = 1;
  for (std::size_t d = 0; d < 3; ++d) {
    if (flat[d] < 2 * reach + 1 || flat[d] > 4096)
      throw BadInput("a grid of bins with a side of " + std::to_string(flat[d]));
    bins.counts_[d] = static_cast<int>(flat[d]);
    bins.cells_ *= flat[d];
  }
  if (words != head + 2 * (bins.cells_ + 1) + ghosts) throw BadInput("bins cut short");
  const auto take = [&](Array<std::uint32_t>& to, const std::uint32_t* from, std::size_t last) {
    to.resize(bins.cells_ + 1);
    std::memcpy(to.data(), from, 4 * to.size());
    for (std::size_t bin = 0; bin < bins.cells_; ++bin) {
      if (to[bin] > to[bin + 1]) throw BadInput("bins out of order");
    }
    if (to[bins.cells_] != last) throw BadInput("bins that do not hold all atoms");
  };
  take(bins.own_first_, flat + head, own);
  take(bins.ghost_first_, flat + head + bins.cells_ + 1, ghosts);
  // Rows reach two bins beyond their middle: only ghosts may be in the outer bins.
  for (std::size_t bin = 0; bin < bins.cells_; ++bin) {
    if (bins.own_first_[bin] == bins.own_first_[bin + 1]) continue;
    std::size_t rest = bin;
    for (std::size_t d = 0; d < 3; ++d) {
      const auto count = static_cast<std::size_t>(bins.counts_[d]), at = rest % count;
      if (at < reach || at + reach >= count) throw BadInput("own atoms in an outer bin");
      rest /= count;
    }
  }
  bins.ghost_index_.resize(ghosts + 16);
  std::fill(bins.ghost_index_.begin(), bins.ghost_index_.end(), 0);
  const std::uint32_t* index = flat + head + 2 * (bins.cells_ + 1);
  for (std::size_t g = 0; g < ghosts; ++g) {
    if (index[g] < own || index[g] >= own + ghosts) throw BadInput("an index that is not a ghost");
    bins.ghost_index_[g] = static_cast<std::int32_t>(index[g]);
  }
  return bins;
}

std::size_t Bins::first_around(std::size_t atom) const {
  const auto* const after = std::upper_bound(own_first_.begin(), own_first_.end(), atom);
  const auto bin = static_cast<std::size_t>(after - own_first_.begin() - 1), along_y = along_x();
  return own_first_[bin - reach * (along_y * static_cast<std::size_t>(counts_[1]) + along_y + 1)];
}

int Bins::rows_around(std::size_t first, std::size_t last, Rows& rows) const {
  int found = 0;
  const auto along_y = static_cast<std::ptrdiff_t>(counts_[0]), along_z = along_y * counts_[1];
  for (int dz = -reach; dz <= reach; ++dz) {
    for (int dy = -reach; dy <= reach; ++dy) {
      const auto middle = static_cast<std::size_t>(static_cast<std::ptrdiff_t>(first) + dz * along_z + dy * along_y);
      const std::size_t end = middle + (last - first) + reach + 1;
      const BinRow row{own_first_[middle - reach], own_first_[end], ghost_first_[middle - reach], ghost_first_[end]};
      if (row.first < row.last || row.ghost_first < row.ghost_last) rows[static_cast<std::size_t>(found++)] = row;
    }
  }
  return found;
}

}  // namespace md
