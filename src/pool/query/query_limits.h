// Limits of queries: of one (query_run.h), and of all (query_service.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace offpath::pool {

struct QueryLimits {
  unsigned threads = 2;                           // of one step, the job's own among them
  std::uint64_t memory_bytes_max = 512ull << 20;  // memory of a step's answer, and of libarrow for a user's queries
  std::uint64_t frame_bytes_max = 16ull << 20;    // of the answer; approximate, since the rows of a piece stay together
  std::uint64_t step_bytes = 64ull << 20;         // of the answer, after which a step ends
  bool loops = true;                              // false: Acero alone, to compare
};

struct QueryServiceLimits {
  QueryLimits query;
  std::size_t running_max = 1;            // steps at a time: the other jobs' threads are not all for queries
  std::size_t open_max = 16;              // of one channel
  std::size_t open_of_member_max = 1024;  // of a member, whose programs share one channel
  TimeNs settle_ns = 5 * second_ns;       // until members agree and no rows move; a query's timeout may be longer
  TimeNs retry_ns = 50 * millisecond_ns;
};

}  // namespace offpath::pool
