// Settings of Pools, and what they count.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "pool/table/table_limits.h"

namespace offpath::pool {

class ObjectStore;

struct PoolsOptions {
  TableLimits table;
  TimeNs put_wait_ns = 30 * second_ns;            // until a put whose owners cannot be reached, or are full, has failed
  TimeNs ask_wait_ns = 5 * second_ns;             // for answers that need no waiting
  TimeNs retry_ns = 50 * millisecond_ns;          // between attempts at one member
  std::uint32_t moves_max = 16;                   // rows under way to new owners at a time
  TimeNs move_retry_ns = 5 * second_ns;           // until one that failed is tried again
  std::uint64_t object_bytes_max = UINT64_MAX;    // of an object of another member: the agent's memory
  std::uint64_t reserved_bytes_max = UINT64_MAX;  // of all reserves for objects of other members
  TimeNs compare_wait_ns = second_ns;             // after members changed, until owners compare their objects
  TimeNs settle_wait_ns = 10 * second_ns;         // after members changed: the time in which all members are asked for
                                                  // a row that its owners lack
  std::int64_t (*real_clock)() = nullptr;         // CLOCK_REALTIME, which stamps puts; null: the time that is given
  // at start, until rows from disk move to their owners: members are still being met
  TimeNs join_wait_ns = 3 * second_ns;
  std::shared_ptr<ObjectStore> store{};  // where objects of pools with spill go; null: there are none
};

struct PoolsCounters {
  std::uint64_t remote_puts = 0, remote_gets = 0, remote_bytes = 0;  // asked of other members
  std::uint64_t served_puts = 0, served_gets = 0, served_bytes = 0;  // asked by them
  std::uint64_t retries = 0, moved_rows = 0, failed_moves = 0, puts_under_way = 0, pulls_waiting = 0, moves_waiting = 0,
                removals_waiting = 0;
  std::uint64_t conflicts = 0;            // objects given up here for others under their keys, from two sides of a
                                          // partition
  std::uint64_t comparisons_waiting = 0;  // comparisons with other owners that are still due since members changed
};

}  // namespace offpath::pool
