#include "telemetry/alarm.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/text.h"

namespace offpath::exchange {
namespace {

// The value that a rule checks, if the sample has it.
std::optional<double> reading(const Schema& schema, const Sample& sample, const AlarmRule& rule) {
  const std::size_t place = schema.find(rule.field);
  if (place == schema.fields.size() || !sample.values.has(place)) return std::nullopt;
  const double value = sample.values.as_real(place, schema.fields[place].type);
  if (std::isnan(value)) return std::nullopt;
  return value;
}

double seconds(TimeNs time) { return static_cast<double>(time) / static_cast<double>(second_ns); }

}  // namespace

std::string_view alarm_kind_name(AlarmKind kind) noexcept {
  switch (kind) {
    case AlarmKind::above:
      return "above";
    case AlarmKind::below:
      return "below";
    case AlarmKind::stale:
      return "stale";
  }
  return "above";
}

Status check(const AlarmRule& rule) {
  if (rule.name.empty()) return fail(Error::invalid, "an alarm has no name");
  if (rule.schema.empty()) return fail(Error::invalid, "the alarm {} names no source", rule.name);
  if (rule.hold_ns < 0) return fail(Error::invalid, "the alarm {} holds for a negative time", rule.name);
  if (rule.kind == AlarmKind::stale) {
    if (!rule.field.empty()) {
      return fail(Error::invalid, "the alarm {} is about missing samples, but names the field {}", rule.name,
                  rule.field);
    }
    if (rule.hold_ns == 0) {
      return fail(Error::invalid, "the alarm {} needs a time after which samples count as missing", rule.name);
    }
    return {};
  }
  if (rule.field.empty()) return fail(Error::invalid, "the alarm {} names no field", rule.name);
  if (!std::isfinite(rule.limit) || !std::isfinite(rule.clears_at)) {
    return fail(Error::invalid, "a limit of the alarm {} is not a number", rule.name);
  }
  const bool is_apart = rule.kind == AlarmKind::above ? rule.clears_at <= rule.limit : rule.clears_at >= rule.limit;
  if (!is_apart) {
    return fail(Error::invalid, "the alarm {} is raised {} {} and cleared at {}, where it would be raised again",
                rule.name, alarm_kind_name(rule.kind), rule.limit, rule.clears_at);
  }
  return {};
}

Result<AlarmRule> parse_alarm(std::string_view when) {
  AlarmRule rule;
  rule.kind = AlarmKind::stale;
  if (when == "silent") return rule;
  const std::size_t sign = when.find_last_of("<>");  // a field's labels may contain earlier ones
  if (sign == std::string_view::npos || sign + 1 == when.size()) {
    return fail(Error::invalid, "'{}' is neither 'FIELD > NUMBER' nor 'FIELD < NUMBER' nor 'silent'", when);
  }
  rule.kind = when[sign] == '>' ? AlarmKind::above : AlarmKind::below;
  rule.field = trimmed(when.substr(0, sign));
  const std::string_view number = trimmed(when.substr(sign + 1));
  const auto limit = number_of<double>(number);
  if (!limit) return fail(Error::invalid, "'{}': '{}' is not a number", when, number);
  rule.limit = rule.clears_at = *limit;
  return rule;
}

Alarms::Alarms(std::vector<AlarmRule> rules) : rules_(std::move(rules)), producers_(rules_.size()) {}

void Alarms::expect(std::string_view schema, const std::string& producer, TimeNs now) {
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    if (rules_[i].schema == schema && rules_[i].kind == AlarmKind::stale) watched_of(i, producer).heard_at = now;
  }
}

Alarms::Watched& Alarms::watched_of(std::size_t rule, const std::string& producer) {
  Producers& producers = producers_[rule];
  if (const auto found = producers.find(producer); found != producers.end()) return found->second;
  make_room(producers);
  return producers.try_emplace(producer).first->second;
}

void Alarms::on_sample(const Schema& schema, const Sample& sample, TimeNs now, std::vector<AlarmChange>& changes) {
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    const AlarmRule& rule = rules_[i];
    if (rule.schema != schema.name) continue;
    Watched& watched = watched_of(i, sample.producer);
    watched.heard_at = now;
    if (rule.kind == AlarmKind::stale) {
      if (watched.is_raised) changes.push_back({i, sample.producer, false, 0, watched.since});
      watched.is_beyond = watched.is_raised = false;
      continue;
    }
    const std::optional<double> read = reading(schema, sample, rule);
    if (!read) continue;
    double value = *read;
    if (schema.fields[schema.find(rule.field)].kind == FieldKind::counter) {
      const std::int64_t elapsed = sample.source_ns - watched.source_ns;
      const double grown = value - watched.counted;
      const bool is_first = !watched.has_counted;
      watched.counted = value;
      watched.source_ns = sample.source_ns;
      watched.has_counted = true;
      // A counter that restarted, or a clock that was set back, starts again.
      if (is_first || elapsed <= 0 || grown < 0) continue;
      value = grown / seconds(elapsed);
    }
    judge(i, sample.producer, watched, value, now, changes);
  }
}

void Alarms::judge(std::size_t rule, const std::string& producer, Watched& watched, double value, TimeNs now,
                   std::vector<AlarmChange>& changes) {
  const AlarmRule& asked = rules_[rule];
  const bool is_above = asked.kind == AlarmKind::above;
  const bool passes = is_above ? value > asked.limit : value < asked.limit;
  const bool is_back = is_above ? value <= asked.clears_at : value >= asked.clears_at;
  watched.value = value;
  if (passes && !watched.is_beyond) {
    watched.is_beyond = true;
    watched.since = now;
  } else if (watched.is_beyond && (watched.is_raised ? is_back : !passes)) {
    if (watched.is_raised) changes.push_back({rule, producer, false, value, watched.since});
    watched.is_beyond = watched.is_raised = false;
  }
  if (watched.is_beyond && !watched.is_raised && now - watched.since >= asked.hold_ns) {
    watched.is_raised = true;
    changes.push_back({rule, producer, true, value, watched.since});
  }
}

// Time reveals only silence. A value is checked when it arrives, so a silent host exceeds no limit.
void Alarms::on_time(TimeNs now, std::vector<AlarmChange>& changes) {
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    if (rules_[i].kind != AlarmKind::stale) continue;
    for (auto& [producer, watched] : producers_[i]) {
      const TimeNs silent = now - watched.heard_at;
      if (silent < rules_[i].hold_ns) continue;
      watched.value = seconds(silent);
      if (watched.is_raised) continue;
      watched.is_beyond = watched.is_raised = true;
      watched.since = watched.heard_at;
      changes.push_back({i, producer, true, watched.value, watched.since});
    }
  }
}

TimeNs Alarms::next_deadline() const noexcept {
  TimeNs next = never;
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    if (rules_[i].kind != AlarmKind::stale) continue;
    for (const auto& [producer, watched] : producers_[i]) {
      if (!watched.is_raised) next = std::min(next, watched.heard_at + rules_[i].hold_ns);
    }
  }
  return next;
}

void Alarms::forget(std::string_view producer, std::vector<AlarmChange>& changes) {
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    const auto found = producers_[i].find(producer);
    if (found == producers_[i].end()) continue;
    const Watched& watched = found->second;
    if (watched.is_raised) changes.push_back({i, found->first, false, watched.value, watched.since});
    producers_[i].erase(found);
  }
}

void Alarms::make_room(Producers& producers) {
  if (producers.size() < producers_max) return;
  auto oldest = producers.end();
  for (auto each = producers.begin(); each != producers.end(); ++each) {
    if (each->second.is_raised) continue;
    if (oldest == producers.end() || each->second.heard_at < oldest->second.heard_at) oldest = each;
  }
  producers.erase(oldest == producers.end() ? producers.begin() : oldest);
}

std::vector<ActiveAlarm> Alarms::active() const {
  std::vector<ActiveAlarm> found;
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    for (const auto& [producer, watched] : producers_[i]) {
      if (watched.is_raised) found.push_back({i, producer, watched.value, watched.since});
    }
  }
  return found;
}

}  // namespace offpath::exchange
