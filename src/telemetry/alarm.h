// Rules over samples: a value that has been beyond a limit for a while, or a host of which no samples come. State is
// kept for each rule and producer; events and the time are arguments, and changes are returned.
//
//   quiet -> beyond     the value passed `limit`                       no report
//   beyond -> raised    it stayed there for `hold`                     a change
//   raised -> quiet     it came back over `clears_at` (hysteresis)     a change
//
// A counter is judged by its rate, in units a second, from two samples. A missing value neither
// exceeds the limit nor clears the alarm. A rule of kind `stale` judges whether samples arrive at all.
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
  std::string schema;  // whose samples: cpu, memory, or a program's own
  AlarmKind kind = AlarmKind::above;
  std::string field{};   // none for stale
  double limit = 0;      // in the field's unit; of a counter, in units a second
  double clears_at = 0;  // above: at most limit; below: at least
  TimeNs hold_ns = 0;    // how long the condition has to hold; of stale: how long nothing arrived
};

// Returns what is wrong with it, if anything.
[[nodiscard]] Status check(const AlarmRule& rule);
// "load1 > 8", "memory_available_bytes < 1e9" or "silent": kind, field and limit of a rule, which clears at its limit.
[[nodiscard]] Result<AlarmRule> parse_alarm(std::string_view when);

struct AlarmChange {
  std::size_t rule;
  std::string producer;
  bool is_raised;
  double value;  // that did it; of stale: seconds since the last sample
  TimeNs since;  // when the condition began
};

struct ActiveAlarm {
  std::size_t rule;
  std::string_view producer;  // until the next call that may change anything
  double value;               // newest
  TimeNs since;
};

class Alarms {
 public:
  // Beyond this many producers of one rule, the one that was silent for longest and is not raised is forgotten.
  static constexpr std::size_t producers_max = 4096;

  explicit Alarms(std::vector<AlarmRule> rules);  // each of which check() takes

  // Samples of this producer are expected: a producer that never sends any is missed as well.
  void expect(std::string_view schema, const std::string& producer, TimeNs now);
  // A sample that arrived now, of a schema that it fits. `changes` is appended to.
  void on_sample(const Schema& schema, const Sample& sample, TimeNs now, std::vector<AlarmChange>& changes);
  void on_time(TimeNs now, std::vector<AlarmChange>& changes);
  [[nodiscard]] TimeNs next_deadline() const noexcept;  // when on_time may report something if nothing arrives before
  // The producer has left and is not expected any more. Its alarms are cleared.
  void forget(std::string_view producer, std::vector<AlarmChange>& changes);

  [[nodiscard]] const std::vector<AlarmRule>& rules() const noexcept { return rules_; }
  [[nodiscard]] std::vector<ActiveAlarm> active() const;

 private:
  struct Watched {
    TimeNs heard_at = 0;
    std::int64_t source_ns = 0;  // of the newest sample
    double counted = 0;          // a counter's value then
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
