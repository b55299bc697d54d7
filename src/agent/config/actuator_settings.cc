#include "agent/config/actuator_settings.h"

#include <algorithm>

namespace offpath::agent {

namespace {

constexpr ConfigKey keys_of_actuators[] = {
    {"actuator.name", ConfigType::text, "", "The name by which functions set it; unique. Required."},
    {"actuator.kind", ConfigType::text, "",
     "power (a powercap zone, in microwatts), cpufreq (the highest frequency of a policy, in kHz), cpu (a cgroup's "
     "cpu.max or cpu.cfs_quota_us, in thousandths of a core) or io (one limit of its io.max or blkio.throttle). "
     "Required."},
    {"actuator.where", ConfigType::text, "",
     "Its directory: a zone such as intel-rapl:0, a policy such as policy0, or a cgroup below actuators.cgroups. "
     "{index} "
     "stands for group.index. Required."},
    {"actuator.device", ConfigType::text, "", "For io only: the device, as MAJOR:MINOR."},
    {"actuator.limit", ConfigType::text, "",
     "For io only: rbps, wbps (bytes a second), riops or wiops (operations a second)."},
    {"actuator.min", ConfigType::integer, "0", "The smallest value that may be set. Required."},
    {"actuator.max", ConfigType::integer, "0", "The largest value that may be set. Required."},
    {"actuator.lease", ConfigType::duration, "10s",
     "How long a setting lasts at most, unless it is repeated. After that, or when the agent ends, the former value is "
     "restored.",
     10 * millisecond_ns, 86400 * second_ns},
};

}  // namespace

std::span<const ConfigKey> actuator_keys() noexcept { return keys_of_actuators; }

Result<ActuatorSettings> read_actuators(const Config& config,
                                        const std::function<std::string(const std::string&)>& placed) {
  ActuatorSettings settings;
  settings.roots = {config.text("actuators.sysfs"), config.text("actuators.cgroups"), config.text("actuators.former")};
  for (const char* key : {"actuators.sysfs", "actuators.cgroups", "actuators.former"})
    if (const std::string& path = config.text(key); !path.empty() && !path.starts_with('/'))
      return bad_value(config, key, "'{}' is not an absolute path", config.text(key));
  for (const Config& one : config.list("actuator")) {
    actuator::ActuatorOptions made;
    made.name = one.text("actuator.name");
    const auto kind = actuator::kind_of(one.text("actuator.kind"));
    if (!kind)
      return bad_value(one, "actuator.kind", "'{}' is not power, cpufreq, cpu or io", one.text("actuator.kind"));
    made.kind = *kind;
    made.where = placed(one.text("actuator.where"));
    made.device = one.text("actuator.device");
    made.limit = one.text("actuator.limit");
    made.min = static_cast<std::uint64_t>(one.integer("actuator.min"));
    made.max = static_cast<std::uint64_t>(one.integer("actuator.max"));
    made.lease_ns = one.duration_ns("actuator.lease");
    if (const Status checked = actuator::check(made); !checked)
      return bad_value(one, "actuator.name", "{}", checked.error().message);
    if (std::ranges::find(settings.list, made.name, &actuator::ActuatorOptions::name) != settings.list.end())
      return bad_value(one, "actuator.name", "there are two actuators with the name '{}'", made.name);
    settings.list.push_back(std::move(made));
  }
  if (settings.list.size() > actuator::actuators_max)
    return fail(Error::too_large, "{} actuators, at most {} are allowed", settings.list.size(),
                actuator::actuators_max);
  return settings;
}

}  // namespace offpath::agent
