// What all parts of Pools share: options, the table of what this agent holds, requests under way to other members,
// numbers, stamps of puts, counters, and the earliest time at which something has to be done. A part needs this and
// the parts that its constructor names.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "pool/members/member_requests.h"
#include "pool/table/frame_table.h"

namespace offpath::pool {

struct PoolsOptions {
  FrameTable::Limits table;
  TimeNs put_wait_ns = 30 * second_ns;            // until a put whose owners cannot be reached, or are full, has failed
  TimeNs ask_wait_ns = 5 * second_ns;             // for an answer to what is answered at once
  TimeNs retry_ns = 50 * millisecond_ns;          // between attempts at one member
  std::uint32_t moves_max = 16;                   // rows under way to new owners at a time
  TimeNs move_retry_ns = 5 * second_ns;           // until one that failed is tried again
  std::uint64_t object_bytes_max = UINT64_MAX;    // of an object of another member: the memory there is
  std::uint64_t reserved_bytes_max = UINT64_MAX;  // of all that is set aside for what other members keep here
  TimeNs compare_wait_ns = second_ns;             // after members changed, until owners compare what they have
  std::int64_t (*real_clock)() = nullptr;         // CLOCK_REALTIME, which stamps puts; null: the time that is given
  // at start, until rows from disk go where they belong: until then members are still met
  TimeNs join_wait_ns = 3 * second_ns;
  std::shared_ptr<ObjectStore> store{};  // where objects of pools with spill go; null: there are none
};

struct PoolsCounters {
  std::uint64_t remote_puts = 0, remote_gets = 0, remote_bytes = 0;  // asked of other members
  std::uint64_t served_puts = 0, served_gets = 0, served_bytes = 0;  // asked by them
  std::uint64_t retries = 0, moved_rows = 0, failed_moves = 0, puts_waiting = 0, pulls_waiting = 0, moves_waiting = 0,
                removals_waiting = 0;
  std::uint64_t conflicts = 0;            // objects given up here for others of their keys, of two sides of a cut
  std::uint64_t comparisons_waiting = 0;  // with other owners, still to be made since members changed
};

// Counters that stamp puts: larger than any that was seen, and those of several agents about in the order of their
// clocks.
class PutClock {
 public:
  explicit PutClock(std::int64_t (*real_clock)()) : real_clock_(real_clock) {}
  [[nodiscard]] std::uint64_t stamp(TimeNs now) noexcept {
    const std::int64_t time = real_clock_ != nullptr ? real_clock_() : now;
    return last_ = std::max(last_ + 1, static_cast<std::uint64_t>(std::max<std::int64_t>(time, 0)));
  }
  void saw(std::uint64_t counter) noexcept { last_ = std::max(last_, counter); }

 private:
  std::int64_t (*real_clock_)();  // null: the time that is given
  std::uint64_t last_ = 0;
};

struct PoolContext {
  explicit PoolContext(const PoolsOptions& chosen) : options(chosen), table(chosen.table), clock(chosen.real_clock) {}
  PoolContext(const PoolContext&) = delete;
  PoolContext& operator=(const PoolContext&) = delete;

  void due(TimeNs at) noexcept { next = std::min(next, at); }
  static void refuse(ChannelNumber channel, std::uint64_t ticket, Failure failure, Effects& effects) {
    effects.push_back(service::FailEffect{channel, ticket, wire::any_reply, std::move(failure)});
  }
  // Whether asking again, or another member, may end otherwise.
  [[nodiscard]] static bool may_pass(Error code) noexcept;

  const PoolsOptions options;
  FrameTable table;
  Numbers numbers;
  MemberRequests requests{numbers};
  PutClock clock;
  PoolsCounters counters;
  TimeNs now = 0;       // of the last event, for what is called without a time
  TimeNs next = never;  // the earliest time at which something has to be done
};

}  // namespace offpath::pool
