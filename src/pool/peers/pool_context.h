// State that all parts of Pools share: options, the table of this agent's objects, requests under way to other members,
// numbers, stamps of puts, counters, and the next deadline. A part needs this and the parts that its constructor names.
//
// Read this first in src/pool/peers, then directory.h (pools and members), member_requests.h (requests to members), and
// the three kinds of requests that follow rows: listings.h, gathers.h, drops.h; removals.h is for objects of services.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "pool/peers/directory.h"
#include "pool/peers/member_requests.h"
#include "pool/peers/pools_options.h"
#include "pool/table/frame_table.h"

namespace offpath::pool {

using Place = FrameTable::Place;

// Counters that stamp puts: larger than any seen so far; those of several agents are about in the order of their
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
  PoolContext(const PoolsOptions& chosen, Directory::Users& users)
      : options(chosen), table(chosen.table), directory(options, table, users), clock(chosen.real_clock) {}
  PoolContext(const PoolContext&) = delete;
  PoolContext& operator=(const PoolContext&) = delete;

  void due(TimeNs at) noexcept { next = std::min(next, at); }
  static void refuse(ChannelNumber channel, std::uint64_t ticket, Failure failure, Effects& effects) {
    effects.push_back(service::FailEffect{channel, ticket, wire::any_reply, std::move(failure)});
  }
  // Whether a repetition, or another member, may have another result.
  [[nodiscard]] static bool may_pass(Error code) noexcept;

  const PoolsOptions options;
  FrameTable table;
  Directory directory;
  Numbers numbers;
  MemberRequests requests{numbers};
  PutClock clock;
  PoolsCounters counters;
  TimeNs now = 0;       // of the last event, for calls without a time
  TimeNs next = never;  // the earliest time at which something has to be done
};

}  // namespace offpath::pool
