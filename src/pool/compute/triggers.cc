#include "pool/compute/triggers.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "pool/directory/glob.h"

namespace offpath::pool {

namespace {

// True if `column` is a result of a trigger with that `result_column`, also of another member's trigger or of a former
// agent.
bool is_result(std::string_view result_column, std::string_view column) {
  return column.starts_with(result_column) &&
         (column.size() == result_column.size() || column[result_column.size()] == '.');
}

}  // namespace

std::string result_column_of(const std::string& result_column, const std::string& output, bool is_only) {
  if (result_column.empty()) return output;
  return is_only ? result_column : fmt::format("{}.{}", result_column, output);
}

Triggers::Triggers(std::vector<TriggerOptions> options) {
  for (TriggerOptions& each : options) {
    Trigger made;
    made.options = std::move(each);
    made.pool = made.options.pool.substr(0, made.options.pool.find('?'));
    if (made.options.every_ns != 0) made.next_at = 0;
    triggers_.push_back(std::move(made));
  }
}

void Triggers::on_shown(const std::string& pool, const FrameTable::Keys& keys, const FramePtr& frame) {
  for (Trigger& trigger : triggers_) {
    const TriggerOptions& options = trigger.options;
    if (options.every_ns != 0 || trigger.pool != pool || is_result(options.result_column, keys.second) ||
        !glob_matches(options.row, keys.first) || !glob_matches(options.column, keys.second))
      continue;
    if (trigger.queue.size() < options.queue_max) {
      trigger.queue.push_back({keys, frame});
    } else if (trigger.counters.dropped++ == 0) {
      log(LogLevel::warning,
          "pool \"{}\": objects arrive faster than {}.{} handles them; it is not called for ({}, {}) and others "
          "(trigger.queue is {})",
          pool, options.plugin, options.function, brief(keys.first), brief(keys.second), options.queue_max);
    }
  }
}

void Triggers::run(TimeNs now, const Start& start) {
  for (std::size_t i = 0; i < triggers_.size(); ++i) {
    Trigger& trigger = triggers_[i];
    if (trigger.options.every_ns != 0) {
      if (trigger.next_at > now) continue;
      const bool begins = std::exchange(trigger.next_at, now + trigger.options.every_ns) == 0;
      if (begins) continue;  // the agent has just started
      if (trigger.running != 0) {
        ++trigger.counters.skipped;
        continue;
      }
      ++trigger.running;
      ++trigger.counters.calls;
      start(i, std::nullopt);
      continue;
    }
    if (trigger.next_at != never && trigger.next_at > now) continue;
    trigger.next_at = never;
    while (!trigger.queue.empty() && trigger.running < trigger.options.calls_max && trigger.next_at == never) {
      Trigger::Object object = std::move(trigger.queue.front());
      trigger.queue.pop_front();
      ++trigger.running;
      ++trigger.counters.calls;
      start(i, std::move(object));
    }
  }
}

void Triggers::on_ended(std::size_t number, const Status& status, std::optional<Trigger::Object> object, TimeNs now) {
  Trigger& trigger = triggers_[number];
  --trigger.running;
  if (!status && status.error().code == Error::would_block && object) {
    --trigger.counters.calls;
    trigger.queue.push_front(std::move(*object));
    trigger.next_at = now + retry_ns;
    return;
  }
  if (status) {
    trigger.failure.clear();
    return;
  }
  ++trigger.counters.failed;
  // Logged once for each reason: a function that fails for one object mostly fails for all.
  if (trigger.failure != status.error().message)
    log(LogLevel::warning, "pool \"{}\": {}", trigger.pool, status.error().message);
  trigger.failure = status.error().message;
}

TimeNs Triggers::next_deadline() const noexcept {
  TimeNs soonest = never;
  for (const Trigger& trigger : triggers_) {
    if (trigger.options.every_ns != 0)
      soonest = std::min(soonest, trigger.next_at);
    else if (!trigger.queue.empty() && trigger.running < trigger.options.calls_max)
      soonest = std::min(soonest, trigger.next_at == never ? 0 : trigger.next_at);
  }
  return soonest;
}

}  // namespace offpath::pool
