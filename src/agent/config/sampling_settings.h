// [sampling], [[host]] and [[source]] of the agent's configuration.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/config.h"
#include "telemetry/host_sampler/sources.h"

namespace offpath::agent {

[[nodiscard]] std::span<const ConfigKey> host_keys() noexcept;
[[nodiscard]] std::span<const ConfigKey> source_keys() noexcept;

struct HostSettings {
  std::string name, address;
  TimeNs interval_ns = 0;
};

// A [[source]]. Its texts must not move: ofs_source_options has pointers to them.
struct SourceSettings {
  std::string set, file, log, pattern, label, type, kind, unit, description, where;
  std::vector<std::string> command, fields;
  double scale = 0;
  TimeNs interval_ns = 0, time_limit_ns = 0;

  [[nodiscard]] ofs_source_options options() const;
  [[nodiscard]] bool runs_program() const { return !command.empty() || ofs_set_runs_program(set.c_str()); }
};

struct SamplingSettings {
  TimeNs interval_ns = second_ns, deadline_ns = second_ns;
  std::string key_file, own_name;  // own_name: what this machine is called
  std::vector<HostSettings> hosts;
  std::vector<std::shared_ptr<const SourceSettings>> sources;
};

[[nodiscard]] Result<SamplingSettings> read_sampling(const Config& config);
[[nodiscard]] std::int64_t real_ns();  // CLOCK_REALTIME

}  // namespace offpath::agent
