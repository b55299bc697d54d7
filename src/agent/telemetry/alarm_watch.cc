#include "agent/telemetry/alarm_watch.h"

#include <algorithm>

#include "base/log.h"

namespace offpath::agent {

std::string condition_text(const exchange::AlarmRule& rule) {
  if (rule.kind == exchange::AlarmKind::stale) return "silent";
  return fmt::format("{} {} {}", rule.field, rule.kind == exchange::AlarmKind::above ? '>' : '<', rule.limit);
}

AlarmWatch::AlarmWatch(loop::Loop& loop, const AlarmSettings& settings, TimeNs interval_ns, SampleVisit visit,
                       const std::vector<std::string>& expected, TimeNs now)
    : alarms_(settings.rules),
      hook_(loop, settings.hook, settings.hook_limit_ns),
      interval_ns_(interval_ns),
      next_at_(settings.rules.empty() ? never : now),
      visit_(std::move(visit)) {
  for (const std::string& host : expected) alarms_.expect("host", host, now);
}

bool AlarmWatch::poll(TimeNs now) {
  hook_.on_time(now);
  if (now < next_at_) return false;
  look(now);
  return true;
}

TimeNs AlarmWatch::next_deadline() const { return std::min(next_at_, hook_.next_deadline()); }

void AlarmWatch::look(TimeNs now) {
  std::map<std::pair<std::string, std::string>, std::uint64_t> seen;
  visit_([&](const exchange::Schema& schema, const exchange::Sample& sample, TimeNs) {
    const auto key = std::pair(schema.name, sample.producer);
    seen.insert_or_assign(key, sample.sequence);
    const auto before = seen_.find(key);
    if (before == seen_.end() || before->second != sample.sequence) alarms_.on_sample(schema, sample, now, changes_);
  });
  // A program that has closed its gauges raises no alarm. A configured host stays watched.
  for (const auto& [key, sequence] : seen_) {
    if (!seen.contains(key) && key.first != "host") alarms_.forget(key.second, changes_);
  }
  seen_ = std::move(seen);
  alarms_.on_time(now, changes_);
  next_at_ = std::min(deadline_after(now, interval_ns_), alarms_.next_deadline());
  for (const exchange::AlarmChange& change : changes_) tell(change, now);
  changes_.clear();
}

void AlarmWatch::tell(const exchange::AlarmChange& change, TimeNs now) {
  const exchange::AlarmRule& rule = alarms_.rules()[change.rule];
  const std::string condition = condition_text(rule);
  const double lasted = static_cast<double>(now - change.since) / 1e9;
  if (change.is_raised)
    log(LogLevel::warning, "alarm {}: {}: {} for {:.1f} s, now {:.6g}", rule.name, change.producer, condition, lasted,
        change.value);
  else
    log(LogLevel::info, "alarm {}: {}: over after {:.1f} s", rule.name, change.producer, lasted);
  hook_.tell({{"OFFPATH_ALARM", rule.name},
              {"OFFPATH_ALARM_STATE", change.is_raised ? "raised" : "cleared"},
              {"OFFPATH_ALARM_HOST", change.producer},
              {"OFFPATH_ALARM_CONDITION", condition},
              {"OFFPATH_ALARM_VALUE", fmt::format("{:.17g}", change.value)},
              {"OFFPATH_ALARM_SECONDS", fmt::format("{:.3f}", lasted)}},
             now);
}

std::vector<AlarmStatus> AlarmWatch::active(TimeNs now) const {
  std::vector<AlarmStatus> all;
  for (const exchange::ActiveAlarm& each : alarms_.active()) {
    const exchange::AlarmRule& rule = alarms_.rules()[each.rule];
    all.push_back({rule.name, std::string(each.producer), condition_text(rule), each.value, now - each.since});
  }
  return all;
}

}  // namespace offpath::agent
