// Rules over samples: a value that has been beyond a limit for a while, or a host whose samples are missing. State is
// kept for each rule and producer; events and the time are arguments, and changes are returned.
//
//   quiet -> beyond     the value passed `limit`                       no report
//   beyond -> raised    it stayed there for `hold`                     a change
//   raised -> quiet     it came back over `clears_at` (hysteresis)     a change
//
// A counter is checked by its rate, in units per second, from two samples. A missing value neither exceeds the limit
// nor clears the alarm. A rule of kind `stale` checks whether samples arrive at all.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "telemetry/sample.h"
#include "telemetry/schema.h"

namespace offpath::exchange {

enum class AlarmKind : std::uint8_t { above, below, stale };
[[nodiscard]] std::string_view alarm_kind_name(AlarmKind kind) noexcept;

struct AlarmRule {
  std::string name;
  std::string schema;  // the source of samples: cpu, memory, or a program's own
  AlarmKind kind = AlarmKind::above;
  std::string field{};   // empty for stale
  double limit = 0;      // in the field's unit; for a counter, in units per second
  double clears_at = 0;  // above: at most limit; below: at least
  TimeNs hold_ns = 0;    // how long the condition has to hold; for stale: how long nothing arrived
};

// Returns the first error in it, if any.
[[nodiscard]] Status check(const AlarmRule& rule);
// "load1 > 8", "memory_available_bytes < 1e9" or "silent": kind, field and limit of a rule, which clears at its limit.
[[nodiscard]] Result<AlarmRule> parse_alarm(std::string_view when);

struct AlarmChange {
  std::size_t rule;
  std::string producer;
  bool is_raised;
  double value;  // that caused it; for stale: seconds since the last sample
  TimeNs since;  // when the condition began
};

struct ActiveAlarm {
  std::size_t rule;
  std::string_view producer;  // valid until the next call that may change anything
  double value;               // newest
  TimeNs since;
};

class Alarms {
 public:
  // Beyond this number of producers of one rule, the longest silent one without a raised alarm is dropped.
  static constexpr std::size_t producers_max = 4096;

  explicit Alarms(std::vector<AlarmRule> rules);  // check() has accepted each

  // Samples of this producer are expected: it is missed even if it never sends any.
  void expect(std::string_view schema, const std::string& producer, TimeNs now);
  // Handles a sample that has just arrived, of a schema that it fits. Appends to `changes`.
  void on_sample(const Schema& schema, const Sample& sample, TimeNs now, std::vector<AlarmChange>& changes);
  void on_time(TimeNs now, std::vector<AlarmChange>& changes);
  [[nodiscard]] TimeNs next_deadline() const noexcept;  // when on_time may report something if nothing arrives earlier
  // The producer has left and is no longer expected. Its alarms are cleared.
  void forget(std::string_view producer, std::vector<AlarmChange>& changes);

  [[nodiscard]] const std::vector<AlarmRule>& rules() const noexcept { return rules_; }
  [[nodiscard]] std::vector<ActiveAlarm> active() const;

 private:
  struct Watched {
    TimeNs heard_at = 0;
    std::int64_t source_ns = 0;  // of the newest sample
    double counted = 0;          // the counter's value at that time
    bool has_counted = false;
    bool is_beyond = false, is_raised = false;
    TimeNs since = 0;  // of is_beyond
    double value = 0;
  };
  using Producers = std::map<std::string, Watched, std::less<>>;

  Watched& watched_of(std::size_t rule, const std::string& producer);
  void judge(std::size_t rule, const std::string& producer, Watched& watched, double value, TimeNs now,
             std::vector<AlarmChange>& changes);
  static void make_room(Producers& producers);

  std::vector<AlarmRule> rules_;
  std::vector<Producers> producers_;  // of each rule
};

}  // namespace offpath::exchange
