#include "agent/config/settings.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "agent/config/core_list.h"
#include "agent/config/exchange_settings.h"
#include "base/suspend_clock.h"
#include "base/text.h"
#include "plugin/message.h"
#include "plugin/plugin_file.h"
#include "plugin/worker_process.h"
#include "pool/directory/pool_name.h"
#include "sift/settings.h"
#include "wire/limits.h"
#include "wire/messages/peer_messages.h"

namespace offpath::agent {

namespace {

using Kind = link::Address::Kind;

Result<LogLevel> parse_level(const Config& config) {
  static constexpr std::string_view names[] = {"debug", "info", "warning", "error", "off"};
  const std::string& level = config.text("log.level");
  for (std::size_t i = 0; i < std::size(names); ++i) {
    if (level == names[i]) return static_cast<LogLevel>(i);
  }
  return bad_value(config, "log.level", "'{}' is not one of debug, info, warning, error, off", level);
}

Result<LogFormat> parse_format(const Config& config) {
  const std::string& format = config.text("log.format");
  if (format == "text") return LogFormat::text;
  if (format == "json") return LogFormat::json;
  return bad_value(config, "log.format", "'{}' is not one of text, json", format);
}

// A user's number, given as such or by the user's name.
Result<uid_t> parse_user(const Config& config, std::string_view key, const std::string& user) {
  if (const auto uid = number_of<uid_t>(user)) return *uid;
  const passwd* entry = getpwnam(user.c_str());
  if (entry == nullptr) return bad_value(config, key, "there is no user '{}'", user);
  return entry->pw_uid;
}

Result<std::vector<uid_t>> parse_users(const Config& config) {
  std::vector<uid_t> uids;
  for (const std::string& user : config.texts("security.allow_uids")) {
    OFP_ASSIGN(const uid_t uid, parse_user(config, "security.allow_uids", user));
    uids.push_back(uid);
  }
  return uids;
}

// The launcher's local rank: set for each process by Open MPI, by Slurm, and by MPICH and Intel MPI. PMIx itself sets
// the rank among the processes of all machines, which no two processes of this machine have in common either.
std::int64_t index_of(const Config& config) {
  if (config.integer("group.index") >= 0) return config.integer("group.index");
  for (const char* variable : {"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID", "PMIX_RANK"}) {
    const char* text = std::getenv(variable);
    if (text == nullptr) continue;
    if (const auto index = number_of<std::uint32_t>(text)) return *index;
  }
  return 0;
}

std::string with_index(std::string text, std::int64_t index) {
  constexpr std::string_view mark = "{index}";
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark))
    text.replace(at, mark.size(), fmt::format("{}", index));
  return text;
}

Status check_member_addresses(const Config& config, std::string_view key) {
  for (const std::string& text : config.texts(key))
    if (auto address = link::Address::parse(text); !address)
      return bad_value(config, key, "{}", address.error().message);
  return {};
}

Result<link::Address> usual_address() {
  auto address = link::default_address();
  if (!address)
    return fail(Error::invalid, "agent.listen is empty and {}: name an address, such as --listen unix:/path/agent.sock",
                address.error().message);
  return address;
}

Result<std::vector<link::Address>> parse_listen(const Config& config) {
  std::vector<link::Address> addresses;
  for (const std::string& text : config.texts("agent.listen")) {
    auto address = link::Address::parse(with_index(text, index_of(config)));
    if (!address) return bad_value(config, "agent.listen", "{}", address.error().message);
    addresses.push_back(std::move(*address));
  }
  if (addresses.empty()) {
    OFP_ASSIGN(link::Address address, usual_address());
    addresses.push_back(std::move(address));
  }
  return addresses;
}

Result<std::optional<link::Address>> parse_http(const Config& config, const std::vector<link::Address>& listen) {
  const std::string text = with_index(config.text("agent.http"), index_of(config));
  if (text == "off") return std::optional<link::Address>();
  if (text.empty()) {
    const auto local = std::ranges::find(listen, link::Address::Kind::unix_socket, &link::Address::kind);
    if (local == listen.end()) return std::optional<link::Address>();
    link::Address beside = *local;
    beside.path = pages_beside(local->path);
    if (beside.path.size() > link::unix_path_bytes_max) return std::optional<link::Address>();
    return std::optional(std::move(beside));
  }
  auto address = link::Address::parse(text.starts_with("unix:") ? text : "tcp:" + text);
  if (!address) return bad_value(config, "agent.http", "'{}' is neither HOST:PORT, unix:/path nor off", text);
  return std::optional(std::move(*address));
}

bool is_in_group(const Config& config) {
  return !config.texts("group.members").empty() || !config.texts("group.join").empty() ||
         config.boolean("group.from_launcher");
}

// Members of a group need different names, even on one machine.
std::string name_of(const Config& config) {
  if (!config.text("agent.name").empty()) return with_index(config.text("agent.name"), index_of(config));
  return is_in_group(config) ? fmt::format("{}-{}", machine_name(), index_of(config)) : machine_name();
}

Status read_place(const Config& config, AgentSettings& settings) {
  const std::string& role = config.text("agent.role");
  if (role != "host" && role != "dpu") return bad_value(config, "agent.role", "'{}' is not one of host, dpu", role);
  settings.role = role == "dpu" ? group::Role::dpu : group::Role::host;
  settings.rack = with_index(config.text("agent.rack"), index_of(config));
  if (!wire::is_rack(settings.rack))
    return bad_value(config, "agent.rack", "'{}': at most {} letters, digits, '.', '-' and '_' are expected",
                     settings.rack, wire::rack_bytes_max);
  return {};
}

Status read_group(const Config& config, AgentSettings& settings) {
  group::MembershipOptions& membership = settings.group.membership;
  for (const std::string_view key : {"group.members", "group.join"}) {
    OFP_TRY(check_member_addresses(config, key));
    for (const std::string& address : config.texts(key)) membership.seeds.push_back(address);
  }
  membership.dead_after_ns = config.duration_ns("group.dead_after");
  settings.group_from_launcher = config.boolean("group.from_launcher");
  settings.group_address = config.text("group.address");
  if (!settings.group_address.empty()) {
    if (auto address = link::Address::parse(settings.group_address); !address)
      return bad_value(config, "group.address", "{}", address.error().message);
  }
  settings.group_tls_ca_file = config.text("group.tls_ca");
  return {};
}

Status parse_plugin_user(const Config& config, plugin::PluginOptions& options) {
  const std::string& user = config.text("plugin.user");
  if (user.empty()) return {};
  const auto uid = number_of<uid_t>(user);
  const passwd* entry = uid ? getpwuid(*uid) : getpwnam(user.c_str());
  if (entry == nullptr) return bad_value(config, "plugin.user", "there is no user '{}'", user);
  options.user = entry->pw_uid;
  options.group = entry->pw_gid;
  return {};
}

Result<std::vector<plugin::PluginOptions>> parse_plugins(const Config& config) {
  std::vector<plugin::PluginOptions> plugins;
  for (const Config& one : config.list("plugin")) {
    plugin::PluginOptions options;
    options.name = one.text("plugin.name");
    if (!plugin::is_function_name(options.name))
      return bad_value(one, "plugin.name", "'{}' is not 1 to 64 letters, digits, _ . -", options.name);
    if (std::ranges::find(plugins, options.name, &plugin::PluginOptions::name) != plugins.end())
      return bad_value(one, "plugin.name", "there are two plug-ins with the name '{}'", options.name);
    options.path = one.text("plugin.path");
    if (!options.path.starts_with('/'))
      return bad_value(one, "plugin.path", "'{}' is not an absolute path", options.path);
    options.workers = static_cast<unsigned>(one.integer("plugin.workers"));
    options.memory_bytes = one.bytes("plugin.memory");
    options.deadline_ns = one.duration_ns("plugin.deadline");
    options.start_deadline_ns = one.duration_ns("plugin.start_deadline");
    options.waiting_max = static_cast<std::size_t>(one.integer("plugin.waiting_max"));
    OFP_TRY(parse_plugin_user(one, options));
    options.nice = static_cast<int>(one.integer("plugin.nice"));
    OFP_ASSIGN(options.cores, read_core_list(one, "plugin.cores"));
    plugins.push_back(std::move(options));
  }
  return plugins;
}

Status check_pool(const Config& config, std::string_view key, const std::string& text) {
  if (auto name = pool::parse_pool_name(text); !name) return bad_value(config, key, "{}", name.error().message);
  if (Status may = pool::check_not_reserved(text); !may) return bad_value(config, key, "{}", may.error().message);
  return {};
}

Status check_sift_pool(const Config& config, const std::string& text) {
  const auto settings = sift::parse_settings(text);
  if (!settings) return bad_value(config, "pool.name", "{}", settings.error().message);
  const bool all_named = !settings->members.empty() && settings->members.find_first_of("*?[") == std::string::npos;
  if (settings->wait > 0 || all_named) return {};
  return bad_value(
      config, "pool.name",
      "'{}' is sifted among the members that live when it is made, and none is known at the start: name their "
      "number (wait=4) or all of them (members=a,b)",
      text);
}

Result<std::vector<PoolSettings>> parse_pools(const Config& config) {
  std::vector<PoolSettings> pools;
  for (const Config& one : config.list("pool")) {
    PoolSettings made;
    made.name = one.text("pool.name");
    OFP_TRY(sift::is_sift_pool(made.name) ? check_sift_pool(one, made.name) : check_pool(one, "pool.name", made.name));
    if (!one.text("pool.user").empty()) {
      OFP_ASSIGN(made.user, parse_user(one, "pool.user", one.text("pool.user")));
    }
    pools.push_back(std::move(made));
  }
  return pools;
}

Result<std::vector<pool::TriggerOptions>> parse_triggers(const Config& config,
                                                         const std::vector<plugin::PluginOptions>& plugins) {
  std::vector<pool::TriggerOptions> triggers;
  for (const Config& one : config.list("trigger")) {
    pool::TriggerOptions made;
    made.pool = one.text("trigger.pool");
    OFP_TRY(check_pool(one, "trigger.pool", made.pool));
    made.row = one.text("trigger.row");
    made.column = one.text("trigger.column");
    made.plugin = one.text("trigger.plugin");
    if (std::ranges::find(plugins, made.plugin, &plugin::PluginOptions::name) == plugins.end())
      return bad_value(one, "trigger.plugin", "there is no [[plugin]] with the name '{}'", made.plugin);
    made.function = one.text("trigger.function");
    if (!plugin::is_function_name(made.function))
      return bad_value(one, "trigger.function", "'{}' is not 1 to 64 letters, digits, _ . -", made.function);
    made.result_column = one.text("trigger.result_column");
    if (made.result_column.empty() || made.result_column.size() > wire::key_bytes_max)
      return bad_value(one, "trigger.result_column", "{} bytes, 1 to {} are allowed", made.result_column.size(),
                       wire::key_bytes_max);
    made.every_ns = one.duration_ns("trigger.every");
    made.result_row = one.text("trigger.result_row");
    if (made.every_ns == 0 && !made.result_row.empty())
      return bad_value(one, "trigger.result_row",
                       "results go under the row of their object; with trigger.every they have this one");
    if (made.every_ns != 0 && (made.row != "*" || made.column != "*"))
      return bad_value(one, "trigger.every",
                       "calls on a timer have no objects: leave trigger.row and trigger.column out");
    if (made.every_ns != 0 && made.every_ns < millisecond_ns) return bad_value(one, "trigger.every", "less than 1ms");
    made.queue_max = static_cast<std::size_t>(one.integer("trigger.queue"));
    made.calls_max = static_cast<std::size_t>(one.integer("trigger.calls"));
    triggers.push_back(std::move(made));
  }
  return triggers;
}

Result<std::optional<FlightSettings>> parse_flight(const Config& config) {
  const std::string& text = config.text("flight.listen");
  if (text.empty()) return std::optional<FlightSettings>();
  auto address = link::Address::parse(text);
  if (!address || (address->kind != Kind::tcp && address->kind != Kind::tls))
    return bad_value(config, "flight.listen", "'{}' is neither tcp:HOST:PORT nor tls:HOST:PORT", text);
  FlightSettings flight{*address, config.text("flight.token_file"), config.text("flight.tls_certificate"),
                        config.text("flight.tls_key"), static_cast<unsigned>(config.integer("flight.queries_max"))};
  if (flight.token_file.empty())
    return bad_value(config, "flight.listen", "it needs flight.token_file, which is not set");
  if (address->kind == Kind::tls && (flight.tls_certificate_file.empty() || flight.tls_key_file.empty()))
    return bad_value(config, "flight.listen", "tls needs flight.tls_certificate and flight.tls_key");
  return std::optional(std::move(flight));
}

Status read_user_plugins(const Config& config, task::UserPluginOptions& options) {
  const std::string& who = config.text("task.user_plugins");
  if (who != "off" && who != "own") return bad_value(config, "task.user_plugins", "'{}' is neither off nor own", who);
  options.permitted = who == "own";
  options.agent = geteuid();
  options.may_change_user = plugin::may_change_user();
  options.of_user_max = static_cast<std::size_t>(config.integer("task.user_plugins_max"));
  options.workers = static_cast<unsigned>(config.integer("task.user_workers"));
  options.memory_bytes = config.bytes("task.user_memory");
  options.deadline_ns = config.duration_ns("task.user_deadline");
  return {};
}

void read_limits(const Config& config, AgentSettings& settings) {
  DispatcherOptions& options = settings.dispatcher;
  options.sifts.agent_user = geteuid();
  options.mover.memory_bytes_max = config.bytes("memory.bytes_max");
  options.mover.user_bytes_max = config.bytes("memory.user_bytes_max");
  options.mover.window_bytes = config.bytes("memory.window");
  options.mover.prepared_bytes_max = config.bytes("memory.prepared_max");
  options.mover.streams_max = static_cast<std::uint32_t>(config.integer("limits.streams_max"));
  options.mover.user_streams_max = static_cast<std::uint32_t>(config.integer("limits.user_streams_max"));
  options.buffers = {config.bytes("memory.cached_max"), config.boolean("memory.huge_pages")};
  options.buffers.buffers_max = static_cast<std::uint64_t>(config.integer("limits.frames_max"));  // 0: set at start
  options.buffers.user_buffers_max = static_cast<std::uint64_t>(config.integer("limits.user_frames_max"));  // likewise
  options.tasks.resident_bytes_max = config.bytes("task.resident_max");
  options.tasks.messages.bytes_max = config.bytes("task.messages_max");
  options.pools.table.waiting_max = static_cast<std::size_t>(config.integer("limits.waiting_max"));
  options.pools.table.user_waiting_max = static_cast<std::size_t>(config.integer("limits.user_waiting_max"));
  if (options.pools.table.user_waiting_max == 0)
    options.pools.table.user_waiting_max = options.pools.table.waiting_max - options.pools.table.waiting_max / 8;
  options.pools.table.user_pools_max = static_cast<std::size_t>(config.integer("limits.user_pools_max"));
  options.pools.table.user_steps_max = static_cast<std::size_t>(config.integer("limits.user_steps_max"));
  options.pools.table.leases_max = static_cast<std::size_t>(config.integer("limits.leases_max"));
  options.queries.query.threads = static_cast<unsigned>(config.integer("queries.threads"));
  options.queries.query.memory_bytes_max = config.bytes("queries.memory_max");
  options.queries.query.step_bytes =
      std::min(options.queries.query.step_bytes, options.queries.query.memory_bytes_max / 4);
  options.queries.running_max = static_cast<std::size_t>(config.integer("queries.running_max"));
  options.queries.open_max = static_cast<std::size_t>(config.integer("queries.open_max"));
  options.channels.pull_slice_bytes = config.bytes("loop.pull_slice");
  options.channels.asked_slice_bytes = config.bytes("loop.asked_slice");
  options.channels.idle_before_sleep_ns = config.duration_ns("loop.spin");
  options.channels.look_out_percent = static_cast<unsigned>(config.integer("loop.look_out"));
  options.channels.clock = monotonic_ns;
  options.suspended = suspended_ns;
  settings.loop.spin_ns = config.duration_ns("loop.spin");
  settings.jobs.threads = static_cast<unsigned>(config.integer("jobs.threads"));
  settings.jobs.queue_max = static_cast<std::size_t>(config.integer("jobs.queue_max"));
  settings.channels_max = static_cast<std::size_t>(config.integer("limits.channels_max"));
  settings.user_channels_max = static_cast<std::size_t>(config.integer("limits.user_channels_max"));
  settings.handshakes_max = static_cast<std::size_t>(config.integer("limits.handshakes_max"));
  settings.segments.count_max = static_cast<std::uint32_t>(config.integer("limits.segments_max"));
  settings.silence_ns = config.duration_ns("limits.silence");
  settings.received.user_descriptors_max = static_cast<std::uint64_t>(config.integer("limits.user_descriptors_max"));
  settings.received.user_mappings_max = static_cast<std::uint64_t>(config.integer("limits.user_mappings_max"));
  settings.segments.bytes_max = config.bytes("limits.segment_bytes_max");
}

}  // namespace

Status check_plugins(const std::vector<plugin::PluginOptions>& plugins) {
  for (const plugin::PluginOptions& options : plugins) {
    if (const auto file = plugin::find_plugin_file(options.path); !file)
      return fail(Error::invalid, "plug-in '{}': {}", options.name, file.error().message);
    if (options.user && *options.user != geteuid() && !plugin::may_change_user())
      return fail(
          Error::denied,
          "plug-in '{}' is to run as user {} (plugin.user), which takes CAP_SETUID, CAP_SETGID and CAP_KILL: start the "
          "agent as root, or leave it out",
          options.name, *options.user);
  }
  return {};
}

std::string pages_beside(std::string_view path) {
  const std::size_t slash = path.rfind('/') + 1;
  std::string_view stem = path.substr(slash);
  if (stem.ends_with(".sock")) stem.remove_suffix(5);
  const bool usual = stem == "agent" || stem.starts_with("agent-");
  return fmt::format("{}{}.sock", path.substr(0, slash),
                     usual ? fmt::format("http{}", stem.substr(5)) : fmt::format("{}-http", stem));
}

std::string machine_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "agent";
}

Result<AgentSettings> read_settings(const Config& config) {
  AgentSettings settings;
  settings.name = name_of(config);
  if (settings.name.size() > 255) return bad_value(config, "agent.name", "{} bytes, at most 255", settings.name.size());
  OFP_TRY(read_place(config, settings));
  OFP_ASSIGN(settings.listen, parse_listen(config));
  OFP_ASSIGN(settings.http, parse_http(config, settings.listen));
  settings.http_named = !config.text("agent.http").empty();
  settings.http_hosts = config.texts("agent.http_hosts");
  settings.http_events = config.boolean("agent.http_events");
  OFP_ASSIGN(settings.flight, parse_flight(config));
  OFP_ASSIGN(settings.log_level, parse_level(config));
  OFP_ASSIGN(settings.log_format, parse_format(config));
  OFP_ASSIGN(settings.allow_uids, parse_users(config));
  OFP_ASSIGN(settings.plugins, parse_plugins(config));
  OFP_ASSIGN(settings.pools, parse_pools(config));
  OFP_ASSIGN(settings.dispatcher.computes.triggers, parse_triggers(config, settings.plugins));
  OFP_ASSIGN(settings.sampling, read_sampling(config));
  OFP_ASSIGN(settings.alarms, read_alarms(config));
  settings.dispatcher.gauges_interval_ns = settings.sampling.interval_ns;
  settings.dispatcher.real_clock = real_ns;
  OFP_ASSIGN(settings.actuators,
             read_actuators(config, [&](const std::string& text) { return with_index(text, index_of(config)); }));
  OFP_ASSIGN(settings.dispatcher.exchanges, parse_exchanges(config));
  OFP_TRY(read_decisions(config, settings.plugins, settings.actuators, settings.dispatcher.exchanges));
  OFP_ASSIGN(settings.tcp, read_tcp(config));
  settings.batch = config.boolean("loop.batch");
  if (config.integer("agent.pin") >= 0) settings.pin = static_cast<unsigned>(config.integer("agent.pin"));
  settings.cores = static_cast<unsigned>(config.integer("agent.cores"));
  OFP_ASSIGN(settings.pins, read_core_list(config, "agent.pins"));
  settings.spill_directory = with_index(config.text("agent.spill_directory"), index_of(config));
  if (!settings.spill_directory.empty() && !settings.spill_directory.starts_with('/'))
    return bad_value(config, "agent.spill_directory", "'{}' is not an absolute path", settings.spill_directory);
  auto profile = link::find_profile(config.text("agent.profile"));
  if (!profile) return bad_value(config, "agent.profile", "{}", profile.error().message);
  settings.profile = std::move(*profile);
  read_limits(config, settings);
  OFP_TRY(read_user_plugins(config, settings.dispatcher.tasks.user_plugins));
  OFP_TRY(read_group(config, settings));
  settings.key_file = config.text("security.key_file");
  settings.old_key_files = config.texts("security.old_key_files");
  if (!settings.old_key_files.empty() && settings.key_file.empty())
    return bad_value(config, "security.old_key_files", "old keys need a new one: set security.key_file");
  settings.tls_certificate_file = config.text("security.tls_certificate");
  settings.tls_key_file = config.text("security.tls_key");
  if (settings.tls_certificate_file.empty() != settings.tls_key_file.empty()) {
    return fail(Error::invalid, "security.tls_certificate is '{}' and security.tls_key '{}': set both or none",
                settings.tls_certificate_file, settings.tls_key_file);
  }
  settings.insecure_network = config.boolean("security.insecure_network");
  settings.keep_ptrace = config.boolean("security.keep_ptrace");
  const auto sandbox = plugin::sandbox_of(config.text("security.sandbox"));
  if (!sandbox)
    return bad_value(config, "security.sandbox", "'{}' is neither on nor log nor off", config.text("security.sandbox"));
  settings.sandbox = settings.dispatcher.tasks.user_plugins.sandbox = *sandbox;
  for (plugin::PluginOptions& each : settings.plugins) each.sandbox = *sandbox;
  settings.force_staging = config.boolean("security.force_staging");
  OFP_TRY(check_cores(config, settings));
  if (settings.cores == 1 && !settings.pins.empty()) settings.pin = settings.pins.front();
  return settings;
}

}  // namespace offpath::agent
