// What the agent is told: every key of its configuration, and the checked values they become.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/config/alarm_settings.h"
#include "agent/config/sampling_settings.h"
#include "agent/config/tcp_settings.h"
#include "agent/flight.h"
#include "agent/services/dispatcher.h"
#include "base/config.h"
#include "base/log.h"
#include "group/group.h"
#include "link/handshake/handshake.h"
#include "link/shaped_link.h"
#include "loop/job_pool.h"
#include "loop/loop.h"
#include "plugin/call.h"

namespace offpath::agent {

// Every key, with default, limits and meaning. docs/reference/configuration.md is written from this table.
[[nodiscard]] std::span<const ConfigKey> agent_keys() noexcept;
[[nodiscard]] std::span<const ConfigList> agent_lists() noexcept;

struct PoolSettings {
  std::string name;           // with its options
  std::optional<uid_t> user;  // the agent's own, if none
};

struct AgentSettings {
  std::string name;
  std::vector<link::Address> listen;
  std::optional<link::Address> http;
  std::vector<std::string> http_hosts;
  std::optional<FlightSettings> flight;
  std::optional<unsigned> pin;  // the core the loop runs on
  std::string spill_directory;  // empty: objects stay in memory
  link::Profile profile;
  DispatcherOptions dispatcher;
  loop::LoopOptions loop;
  loop::JobPoolOptions jobs;
  std::size_t channels_max = 0, user_channels_max = 0, handshakes_max = 0;
  link::SegmentLimits segments;
  ReceivedLimits received;  // of each user; 0: settled at start, as those of all are
  TimeNs silence_ns = 0;
  std::vector<uid_t> allow_uids;
  group::GroupOptions group;
  bool group_from_launcher = false;  // the launcher exchanges the members' addresses
  std::string group_address;         // how other members reach this one; empty: as it listens
  std::string group_tls_ca_file;
  std::string key_file, tls_certificate_file, tls_key_file;
  std::vector<std::string> old_key_files;
  bool insecure_network = false, keep_ptrace = true, force_staging = false;
  plugin::Sandbox sandbox = plugin::Sandbox::on;
  LogLevel log_level = LogLevel::info;
  std::vector<plugin::PluginOptions> plugins;
  std::vector<PoolSettings> pools;
  SamplingSettings sampling;
  AlarmSettings alarms;
  std::optional<TcpSettings> tcp;
};

// Checks everything that can be checked without touching the system. Errors name the key, its value and where the
// value was set.
[[nodiscard]] Result<AgentSettings> read_settings(const Config& config);

[[nodiscard]] std::string machine_name();
// Are the files of plug-ins there, and can nobody else change them; may the agent start workers of the users that are
// named? Whether they can be loaded only a worker finds out.
[[nodiscard]] Status check_plugins(const std::vector<plugin::PluginOptions>& plugins);

// Does every address of this host name belong to this machine alone? A name that is not known is an error.
[[nodiscard]] Result<bool> is_loopback(const std::string& host);

// Refuses addresses that need what is not configured: a key, a certificate, or insecure_network = true. Returns the
// sentences to be said at start about what is open to others.
[[nodiscard]] Result<std::vector<std::string>> check_exposure(const AgentSettings& settings);

}  // namespace offpath::agent
