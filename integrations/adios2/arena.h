// ofp_alloc memory for the copies of a step: values of sync Puts, descriptions, snapshots. It is taken in order, and
// all of it is freed when the agent has pulled the step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <offpath/memory.hpp>
#include <vector>

namespace offpath::adios {

class Arena {
 public:
  explicit Arena(const Channel& channel) : channel_(channel) {}

  [[nodiscard]] std::byte* take(std::size_t bytes) {
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    if (segments_.empty() || segments_.back().bytes().size() - used_ < rounded) {
      const std::uint64_t size = std::max({std::uint64_t{rounded}, next_bytes_, std::uint64_t{smallest}});
      segments_.emplace_back(channel_, size);
      taken_ += size;
      used_ = 0;
    }
    std::byte* const at = segments_.back().bytes().data() + used_;
    used_ += rounded;
    return at;
  }
  // The next step probably needs as much as this one, so it gets one piece of that size.
  void reset() {
    if (segments_.size() > 1) {
      next_bytes_ = taken_;
      segments_.clear();
      taken_ = 0;
    }
    used_ = 0;
  }

 private:
  static constexpr std::size_t alignment = 64, smallest = 256 * 1024;

  const Channel& channel_;
  std::vector<Segment> segments_;
  std::size_t used_ = 0;  // of the last segment
  std::uint64_t taken_ = 0, next_bytes_ = 0;
};

}  // namespace offpath::adios
