// Limits of computations (compute_service.h), and the triggers of the configuration (triggers.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace offpath::pool {

struct TriggerOptions {
  std::string pool;                     // may say its options
  std::string row = "*", column = "*";  // patterns
  std::string plugin, function;
  std::string result_row, result_column;  // the row only with `every_ns`; otherwise the object's row is used
  TimeNs every_ns = 0;                    // if not 0, the function is called periodically, without objects
  std::size_t queue_max = 64;             // objects that wait for their call; they stay in memory
  std::size_t calls_max = 4;              // under way
};

struct ComputeLimits {
  std::size_t waiting_max = 4096;              // computations that wait for objects; a user has seven eighths
  std::uint64_t copied_bytes_max = 256 << 10;  // copied by the loop itself; more bytes of outputs are copied by a job
  std::vector<TriggerOptions> triggers;
};

}  // namespace offpath::pool
