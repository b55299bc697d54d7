// [actuators] and [[actuator]] of the agent's configuration.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "actuator/actuator.h"
#include "base/config.h"

namespace offpath::agent {

[[nodiscard]] std::span<const ConfigKey> actuator_keys() noexcept;

struct ActuatorSettings {
  std::vector<actuator::ActuatorOptions> list;  // empty: nothing may be set
  actuator::Roots roots;
};

// `placed`: a text with {index} replaced.
[[nodiscard]] Result<ActuatorSettings> read_actuators(const Config& config,
                                                      const std::function<std::string(const std::string&)>& placed);

}  // namespace offpath::agent
