// Arrays of LAMMPS that an agent reads where they lie. They move when LAMMPS needs room for more atoms.
//
// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <offpath/offpath.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace offpath_lammps {

class AnnouncedArrays {
 public:
  explicit AnnouncedArrays(const offpath::Channel& channel) : channel_(channel) {}

  // Announces those that are new, lie elsewhere than before, or have become longer; each has its place in `arrays`. One
  // that has become empty is withdrawn. Throws offpath::Error.
  void announce(std::span<const std::span<const std::byte>> arrays) {
    if (known_.size() < arrays.size()) known_.resize(arrays.size());
    for (std::size_t at = 0; at < arrays.size(); ++at) {
      const auto array = arrays[at];
      Known& known = known_[at];
      if (array.empty()) {
        known = {};
        continue;
      }
      if (array.data() == known.memory.data() && array.size() <= known.memory.size()) continue;
      if (known.range)
        known.range->reannounce(array);
      else
        known.range.emplace(channel_, array);
      known.memory = array;
    }
  }

 private:
  struct Known {
    std::span<const std::byte> memory;
    std::optional<offpath::Range> range;
  };
  const offpath::Channel& channel_;
  std::vector<Known> known_;
};

}  // namespace offpath_lammps
