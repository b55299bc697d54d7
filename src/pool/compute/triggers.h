// Computations that the configuration asks for: on each object that comes into a pool, or again
// and again ([[trigger]], docs/guides/pools.md). Which calls are due; compute_service.h carries them out.
//
// An object's function is called by the first owner of its row. Its results go under the same row and the trigger's own
// column, and such objects are never the trigger's inputs, whoever put them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "pool/table/frame_table.h"

namespace offpath::pool {

struct TriggerOptions {
  std::string pool;                     // may say its options
  std::string row = "*", column = "*";  // patterns
  std::string plugin, function;
  std::string result_row, result_column;  // the row only with `every_ns`: otherwise it is the object's
  TimeNs every_ns = 0;                    // not 0: called without objects
  std::size_t queue_max = 64;             // objects that wait for their call: they are kept in memory for it
  std::size_t calls_max = 4;              // under way
};

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
  TimeNs next_at = never;  // of a timer; or when what did not find room at the plug-in is tried again
  std::string failure;     // of the last call; empty: it went well
};

class Triggers {
 public:
  explicit Triggers(std::vector<TriggerOptions> options);

  void on_shown(const std::string& pool, const FrameTable::Keys& keys, const FramePtr& frame);
  // Calls `start` for each call that is due now. Without an object it is a timer's.
  using Start = std::function<void(std::size_t trigger, std::optional<Trigger::Object> object)>;
  void run(TimeNs now, const Start& start);
  // A call is over. One that found no room to wait at the plug-in comes back with its object, and is made again a
  // little later.
  void on_ended(std::size_t trigger, const Status& status, std::optional<Trigger::Object> object, TimeNs now);
  [[nodiscard]] TimeNs next_deadline() const noexcept;
  [[nodiscard]] const std::vector<Trigger>& all() const noexcept { return triggers_; }

 private:
  static constexpr TimeNs retry_ns = 10 * millisecond_ns;
  std::vector<Trigger> triggers_;
};

// The column of an output: the result's own, with the output's name behind it where a call has several.
[[nodiscard]] std::string result_column_of(const std::string& result_column, const std::string& output, bool is_only);

}  // namespace offpath::pool
