// All keys of the agent's configuration, and the checked values that they become.
//
// Read this first in src/agent/config, then core_list.h and headers of tables with keys of their own: tcp_settings.h,
// exchange_settings.h, sampling_settings.h, alarm_settings.h, actuator_settings.h. settings_keys.cc declares the keys.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/config/actuator_settings.h"
#include "agent/config/alarm_settings.h"
#include "agent/config/flight_settings.h"
#include "agent/config/sampling_settings.h"
#include "agent/config/tcp_settings.h"
#include "agent/log_sink.h"
#include "agent/services/dispatcher_options.h"
#include "base/config.h"
#include "base/log.h"
#include "group/group.h"
#include "link/handshake/handshake.h"
#include "link/shaped_link.h"
#include "loop/job_pool.h"
#include "loop/loop.h"
#include "plugin/call.h"

namespace offpath::agent {

// Every key, with its default, limits and meaning: the source of docs/reference/configuration.md.
[[nodiscard]] std::span<const ConfigKey> agent_keys() noexcept;
[[nodiscard]] std::span<const ConfigList> agent_lists() noexcept;

struct PoolSettings {
  std::string name;           // with its options
  std::optional<uid_t> user;  // none: the agent's own
};

struct AgentSettings {
  std::string name;
  group::Role role = group::Role::host;
  std::string rack;  // empty: unknown
  std::vector<link::Address> listen;
  std::optional<link::Address> http;
  bool http_named = false;  // else an agent that cannot serve its pages there does without
  std::vector<std::string> http_hosts;
  bool http_events = false;
  std::optional<FlightSettings> flight;
  unsigned cores = 1;           // loops, each in a process of its own (agent/cores)
  std::vector<unsigned> pins;   // where each of several runs; empty: anywhere
  std::optional<unsigned> pin;  // the core the loop runs on
  bool batch = true;            // the loop never takes the core of a program that wakes it
  std::string spill_directory;  // empty: objects stay in memory
  link::Profile profile;
  DispatcherOptions dispatcher;
  loop::LoopOptions loop;
  loop::JobPoolOptions jobs;
  std::size_t channels_max = 0, user_channels_max = 0, handshakes_max = 0;
  link::SegmentLimits segments;
  ReceivedLimits received;  // 0: set at start, like the limits of all users
  TimeNs silence_ns = 0;
  std::vector<uid_t> allow_uids;
  group::GroupOptions group;
  bool group_from_launcher = false;  // the launcher exchanges the members' addresses
  std::string group_address;         // how other members reach this one; empty: taken from agent.listen
  std::string group_tls_ca_file;
  std::string key_file, tls_certificate_file, tls_key_file;
  std::vector<std::string> old_key_files;
  bool insecure_network = false, keep_ptrace = true, force_staging = false;
  plugin::Sandbox sandbox = plugin::Sandbox::on;
  LogLevel log_level = LogLevel::info;
  LogFormat log_format = LogFormat::text;
  std::vector<plugin::PluginOptions> plugins;
  std::vector<PoolSettings> pools;
  SamplingSettings sampling;
  AlarmSettings alarms;
  ActuatorSettings actuators;
  std::optional<TcpSettings> tcp;
};

// Checks everything that can be checked without touching the system. Errors name the key, its value and the place where
// it was set.
[[nodiscard]] Result<AgentSettings> read_settings(const Config& config);

// Refuses by name what several cores cannot have: one link or device for all, or one of a kind in an agent.
[[nodiscard]] Status check_cores(const Config& config, const AgentSettings& settings);

[[nodiscard]] std::string machine_name();
// Where an agent at this Unix socket has its pages: agent.sock at http.sock, agent-3.sock at http-3.sock, and any other
// NAME.sock at NAME-http.sock.
[[nodiscard]] std::string pages_beside(std::string_view path);
// Checks that the files of plug-ins exist, that only their owners can change them, and that the agent may start workers
// of the configured users. Only a worker can check whether a plug-in loads.
[[nodiscard]] Status check_plugins(const std::vector<plugin::PluginOptions>& plugins);

// Whether every address of this host name belongs to this machine alone. An unknown name is an error.
[[nodiscard]] Result<bool> is_loopback(const std::string& host);

// Refuses addresses without the key, certificate or insecure_network = true that they need. Returns warnings for the
// log about everything that is open to others.
[[nodiscard]] Result<std::vector<std::string>> check_exposure(const AgentSettings& settings);

}  // namespace offpath::agent
