// Computations of the configuration: on each new object of a pool, or periodically ([[trigger]], docs/guides/pools.md).
// Decides which calls are due; compute_service.h carries them out.
//
// The first owner of an object's row calls the function. Results go under the same row and the trigger's own column.
// Objects of that column are never inputs, whichever program put them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "pool/compute/compute_limits.h"
#include "pool/table/frame_table.h"

namespace offpath::pool {

struct TriggerCounters {
  std::uint64_t calls = 0, failed = 0;
  std::uint64_t dropped = 0;  // objects for which the queue had no room
  std::uint64_t skipped = 0;  // times at which the call before was not over
};

struct Trigger {
  TriggerOptions options;
  std::string pool;  // without options
  TriggerCounters counters;
  struct Object {
    FrameTable::Keys keys;
    FramePtr frame;
  };
  std::deque<Object> queue;
  std::size_t running = 0;
  TimeNs next_at = never;  // the timer's next call, or the next attempt of a call that found no room at the plug-in
  std::string failure;     // of the last call; empty: it succeeded
};

class Triggers {
 public:
  explicit Triggers(std::vector<TriggerOptions> options);

  void on_shown(const std::string& pool, const FrameTable::Keys& keys, const FramePtr& frame);
  // Calls `start` for each call that is due now; periodic calls have no object.
  using Start = std::function<void(std::size_t trigger, std::optional<Trigger::Object> object)>;
  void run(TimeNs now, const Start& start);
  // A call is over. One that found no room at the plug-in returns with its object, and is made again a little later.
  void on_ended(std::size_t trigger, const Status& status, std::optional<Trigger::Object> object, TimeNs now);
  [[nodiscard]] TimeNs next_deadline() const noexcept;
  [[nodiscard]] const std::vector<Trigger>& all() const noexcept { return triggers_; }

 private:
  static constexpr TimeNs retry_ns = 10 * millisecond_ns;
  std::vector<Trigger> triggers_;
};

// The column of an output: the result's, followed by the output's name if a call has several.
[[nodiscard]] std::string result_column_of(const std::string& result_column, const std::string& output, bool is_only);

}  // namespace offpath::pool
