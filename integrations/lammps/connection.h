// A process's channel to its agent, with the announced arrays and the stream. Read fix_offpath.h first.
//
// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <offpath/offpath.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "announced_arrays.h"
#include "columns.h"

namespace offpath_lammps {

struct Target {
  std::string agent, pool, name;
  std::uint64_t keep = 0;
  std::uint32_t ranks = 1, rank = 0;
};

// Its functions throw offpath::Error.
class Connection {
 public:
  Connection(Target target, const std::vector<AtomColumn>& columns);

  // Posts one frame and the end of the step. `arrays` has the memory of each column, of which the first `rows` rows are
  // handed over. Returns the ticket of the frame. Waits at most `wait` for room on the agent.
  [[nodiscard]] std::uint64_t post(const std::vector<std::span<const std::byte>>& arrays, std::uint64_t rows,
                                   const std::string& row, bool snapshot, std::chrono::nanoseconds wait);
  // Until the arrays of this frame may change.
  void wait_pulled(std::uint64_t ticket, std::chrono::nanoseconds wait) { stream_->wait_pulled(ticket, wait); }
  // Until the agent answers for all that was posted.
  void wait_stored(std::chrono::nanoseconds wait);

 private:
  Target target_;
  std::vector<offpath::Column> columns_;
  offpath::Channel channel_;
  AnnouncedArrays announced_;
  std::optional<offpath::Stream> stream_;
  std::uint64_t rows_max_ = 1, newest_ = 0;
};

}  // namespace offpath_lammps
