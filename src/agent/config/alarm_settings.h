// [alarms] and [[alarm]] of the agent's configuration.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/config.h"
#include "telemetry/alarm.h"

namespace offpath::agent {

[[nodiscard]] std::span<const ConfigKey> alarm_keys() noexcept;

struct AlarmSettings {
  std::vector<exchange::AlarmRule> rules;
  std::vector<std::string> hook;  // program and arguments; empty: no hook
  TimeNs hook_limit_ns = 10 * second_ns;
};

[[nodiscard]] Result<AlarmSettings> read_alarms(const Config& config);

}  // namespace offpath::agent
