#include "agent/config/alarm_settings.h"

#include <algorithm>

#include "base/text.h"

namespace offpath::agent {

namespace {

constexpr ConfigKey keys_of_alarms[] = {
    {"alarm.name", ConfigType::text, "",
     "The alarm's name in the log, in metrics and for the hook; unique. Empty: its condition."},
    {"alarm.when", ConfigType::text, "",
     "'FIELD > NUMBER' or 'FIELD < NUMBER', where a counter stands for its rate per second; or 'silent': samples "
     "stopped. Required."},
    {"alarm.of", ConfigType::text, "host", "The source of its samples: host, or the name of programs' gauges."},
    {"alarm.lasting", ConfigType::duration, "10s", "How long the condition has to hold before the alarm is raised.", 0,
     86400 * second_ns},
    {"alarm.clears_at", ConfigType::text, "",
     "The number at which the alarm is cleared again. Empty: the number in its condition."},
};

Result<exchange::AlarmRule> read_alarm(const Config& one) {
  auto read = exchange::parse_alarm(one.text("alarm.when"));
  if (!read) return bad_value(one, "alarm.when", "{}", read.error().message);
  exchange::AlarmRule rule = std::move(*read);
  rule.name = one.text("alarm.name").empty() ? one.text("alarm.when") : one.text("alarm.name");
  rule.schema = one.text("alarm.of");
  rule.hold_ns = one.duration_ns("alarm.lasting");
  if (const std::string& text = one.text("alarm.clears_at"); !text.empty()) {
    const auto clears_at = number_of<double>(text);
    if (!clears_at) return bad_value(one, "alarm.clears_at", "'{}' is not a number", text);
    rule.clears_at = *clears_at;
  }
  if (const Status checked = exchange::check(rule); !checked)
    return bad_value(one, "alarm.when", "{}", checked.error().message);
  return rule;
}

}  // namespace

std::span<const ConfigKey> alarm_keys() noexcept { return keys_of_alarms; }

Result<AlarmSettings> read_alarms(const Config& config) {
  AlarmSettings settings;
  settings.hook = config.texts("alarms.hook");
  settings.hook_limit_ns = config.duration_ns("alarms.hook_limit");
  for (const Config& one : config.list("alarm")) {
    OFP_ASSIGN(exchange::AlarmRule rule, read_alarm(one));
    if (std::ranges::find(settings.rules, rule.name, &exchange::AlarmRule::name) != settings.rules.end())
      return bad_value(one, "alarm.name", "there are two alarms with the name '{}'", rule.name);
    settings.rules.push_back(std::move(rule));
  }
  return settings;
}

}  // namespace offpath::agent
