#include "agent/settings.h"

#include <netdb.h>
#include <netinet/in.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "agent/exchange_settings.h"
#include "plugin/message.h"
#include "plugin/plugin_file.h"
#include "plugin/worker_process.h"

namespace offpath::agent {

namespace {

using Kind = link::Address::Kind;

constexpr std::int64_t mebibyte = 1 << 20;
constexpr std::int64_t tebibyte = 1LL << 40;

constexpr ConfigKey keys[] = {
    {"agent.name", ConfigType::text, "", "What programs and people see. Empty: the name of the machine."},
    {"agent.listen", ConfigType::texts, "",
     "Addresses programs connect to: unix:/path, tcp:HOST:PORT, tls:HOST:PORT, verbs:HOST:PORT (RDMA) ([::1] for IPv6; "
     "port 0 takes a free one). "
     "Empty: unix:$XDG_RUNTIME_DIR/offpath/agent.sock, for root unix:/run/offpath/agent.sock."},
    {"agent.http", ConfigType::text, "",
     "Where /metrics, /status.json, /healthz and the status page are served: HOST:PORT or unix:/path. Beyond this "
     "machine it wants security.insecure_network. Empty: if agent.listen is empty as well, at http.sock beside the "
     "agent's socket, else nowhere."},
    {"agent.pin", ConfigType::integer, "-1", "The core the loop runs on. -1: any.", -1, 4095},
    {"agent.spill_directory", ConfigType::text, "",
     "Directory for objects of pools with spill=on or spill=durable ([pool.md](pool.md)): an absolute path, made if its parent is there, "
     "of this agent's user and open to nobody else. {index} stands for group.index. Empty: there are no such pools."},
    {"agent.profile", ConfigType::text, "none",
     "Makes this agent as slow as a device: none, or bluefield2 (bandwidth and latency of its link, and a cgroup limit "
     "for its processor). For experiments."},
    {"loop.spin", ConfigType::duration, "1ms",
     "For how long the loop goes on looking after the last work, before it sleeps and has to be woken by a system "
     "call.",
     0, 60 * second_ns},
    {"loop.pull_slice", ConfigType::bytes, "512KiB",
     "How much of one batch is read before the other channels are looked at again.", 4096, 1 << 30},
    {"loop.asked_slice", ConfigType::bytes, "2MiB",
     "The same where the program has to answer each read (tcp, tls): larger, because a slice is a request and an answer.",
     4096, 1 << 30},
    {"jobs.threads", ConfigType::integer, "2",
     "Threads for work that would hold up the loop, such as building Arrow "
     "arrays or writing files.",
     1, 256},
    {"jobs.queue_max", ConfigType::integer, "64", "Jobs handed to these threads at a time; others wait in the loop.", 1,
     65536},
    {"queries.threads", ConfigType::integer, "2", "Threads that compute one query's answer.", 1, 256},
    {"queries.running_max", ConfigType::integer, "1", "Queries that compute at a time; each takes one of jobs.threads.", 1, 256},
    {"queries.memory_max", ConfigType::bytes, "512MiB", "Memory one query may take at a time, the part of its answer included.",
     mebibyte, tebibyte},
    {"queries.open_max", ConfigType::integer, "16", "Answers that one program may read at a time.", 1, 65536},
    {"flight.listen", ConfigType::text, "",
     "Where clients of Arrow Flight reach the pools of the agent's own user: tcp:HOST:PORT or tls:HOST:PORT, port 0 for any. "
     "Empty: nowhere."},
    {"flight.token_file", ConfigType::text, "",
     "File with the token that every call brings as \"authorization: Bearer TOKEN\": at least 16 printable characters, readable "
     "by its owner alone."},
    {"flight.tls_certificate", ConfigType::text, "", "PEM file with the certificate of a tls endpoint of Flight."},
    {"flight.tls_key", ConfigType::text, "", "PEM file with the private key of that certificate, readable by its owner alone."},
    {"flight.queries_max", ConfigType::integer, "2", "Answers that Flight's clients read at a time.", 1, 1024},
    {"memory.bytes_max", ConfigType::bytes, "8GiB", "Memory for frames, those promised to programs as credit included.",
     mebibyte, 64 * tebibyte},
    {"memory.user_bytes_max", ConfigType::bytes, "64TiB",
     "Of memory.bytes_max, what frames of one user may take, those promised as credit included.", mebibyte, 64 * tebibyte},
    {"memory.window", ConfigType::bytes, "256MiB", "Credit an open stream is given in advance, if there is room.", 4096,
     tebibyte},
    {"memory.cached_max", ConfigType::bytes, "1GiB",
     "Memory kept for frames to come after others have left. It is in addition to memory.bytes_max.", 0, tebibyte},
    {"memory.prepared_max", ConfigType::bytes, "16MiB",
     "The largest buffer that a job makes for a stream's next frame before that frame is asked for. 0: none.", 0,
     tebibyte},
    {"memory.huge_pages", ConfigType::boolean, "true", "Ask for huge pages for buffers of 2 MiB and more."},
    {"limits.channels_max", ConfigType::integer, "4096", "Programs connected at the same time.", 1, 1 << 20},
    {"limits.handshakes_max", ConfigType::integer, "64",
     "Connections that are still introducing themselves. Others wait until one is done or 5 s have passed.", 1, 65536},
    {"limits.user_channels_max", ConfigType::integer, "4096", "Programs of one user connected at the same time.", 1, 1 << 20},
    {"limits.streams_max", ConfigType::integer, "65536", "Open streams of all programs together.", 1, 1 << 24},
    {"limits.user_streams_max", ConfigType::integer, "65536", "Open streams of one user's programs together.", 1, 1 << 24},
    {"limits.segments_max", ConfigType::integer, "4096", "Shared segments of one program.", 1, 1 << 20},
    {"limits.segment_bytes_max", ConfigType::bytes, "64GiB", "Bytes of all shared segments of one program together.",
     mebibyte, 64 * tebibyte},
    {"limits.silence", ConfigType::duration, "5s",
     "For how long a program on another machine (tcp, tls, verbs) may give no answer, or the agent to the program, until "
     "each side takes the other for gone: a machine that was switched off, a network that was cut. Whole seconds.",
     wire::silence_ms_min * millisecond_ns, wire::silence_ms_max * millisecond_ns},
    {"limits.waiting_max", ConfigType::integer, "65536", "Requests for objects that are not there yet.", 1, 1 << 24},
    {"limits.leases_max", ConfigType::integer, "65536", "Frames one program may hold mapped.", 1, 1 << 24},
    {"group.members", ConfigType::texts, "",
     "Addresses of agents that form a group with this one; its own may be among them, so that all can have the same list. "
     "Each is tried until it answers."},
    {"group.join", ConfigType::texts, "",
     "The address of one running member, or of several: the group is joined there, whoever else is in it."},
    {"group.from_launcher", ConfigType::boolean, "false",
     "All agents that one launcher started together form a group: it exchanges their addresses (mpirun of MPICH and Intel MPI, "
     "srun --mpi=pmi2)."},
    {"group.address", ConfigType::text, "",
     "Where other members reach this one. Empty: the first of agent.listen that is not unix, else the first; an address "
     "that stands for all of the machine's is told with the machine's name."},
    {"group.index", ConfigType::integer, "-1",
     "Which of its machine's agents this one is: what {index} stands for in agent.name, agent.listen and agent.http. "
     "-1: the local rank where MPI or Slurm tell one, else 0.",
     -1, 65535},
    {"group.dead_after", ConfigType::duration, "5s",
     "How long after a member's last sign of life the others hold it dead at the latest, and what was asked of it fails. "
     "The same for all members.",
     500 * millisecond_ns, 3600 * second_ns},
    {"group.tls_ca", ConfigType::text, "",
     "PEM file with the certificate authority of the other members, for tls addresses."},
    {"sampling.interval", ConfigType::duration, "1s",
     "How often hosts ([[host]]), this machine's own sources ([[source]]) and gauges of programs are sampled.", 100 * microsecond_ns,
     3600 * second_ns},
    {"sampling.deadline", ConfigType::duration, "1s",
     "How long a sample may take, lost datagrams included; a host that has not answered for three of these and three intervals has no values.",
     millisecond_ns, 3600 * second_ns},
    {"sampling.key_file", ConfigType::text, "",
     "The key shared with the samplers of all hosts: a file of 16 to 4096 bytes that nobody else may read. Needed for [[host]]."},
    {"security.allow_uids", ConfigType::texts, "",
     "Users, by number or name, who may connect to Unix sockets besides root and the agent's own user."},
    {"security.key_file", ConfigType::text, "",
     "The key shared with programs that connect by tcp, tls or verbs: a file of 16 to 4096 bytes that nobody else may read. "
     "Needed for such addresses. Read again on SIGHUP, as are the next three."},
    {"security.old_key_files", ConfigType::texts, "",
     "Keys that are good enough besides key_file, while programs change over to that one (docs/threat-model.md). The log "
     "names who knows no other."},
    {"security.tls_certificate", ConfigType::text, "",
     "PEM file with the agent's certificate chain, for tls addresses."},
    {"security.tls_key", ConfigType::text, "", "PEM file with the private key of the certificate."},
    {"security.insecure_network", ConfigType::boolean, "false",
     "Allow what others on the network could read or change: tcp and verbs addresses and HTTP beyond this machine."},
    {"security.keep_ptrace", ConfigType::boolean, "true",
     "If started with CAP_SYS_PTRACE (as root, or given by systemd), keep it, so that arrays of every allowed user's "
     "program are read where they lie. Without it such programs copy through shared memory. Every other capability is "
     "given up in any case, but for what plugin.user takes."},
    {"security.force_staging", ConfigType::boolean, "false",
     "Read no program's memory directly, not even where it is permitted; programs copy through shared memory."},
    {"log.level", ConfigType::text, "info", "debug, info, warning, error or off. Read again on SIGHUP."},
};

constexpr ConfigKey plugin_keys[] = {
    {"plugin.name", ConfigType::text, "", "What calls name it by: letters, digits, _ . -, each name once. Has to be there."},
    {"plugin.path", ConfigType::text, "",
     "The shared object, absolute. It and every folder above belong to root or the agent's user, and nobody else may write to "
     "them. Has to be there."},
    {"plugin.workers", ConfigType::integer, "1", "Processes that run its functions, one call at a time in each.", 1, 256},
    {"plugin.memory", ConfigType::bytes, "1GiB",
     "Private memory of a worker at most; and as much for the outputs of one call. What inputs take does not count.", 16 * mebibyte,
     64 * tebibyte},
    {"plugin.deadline", ConfigType::duration, "60s",
     "How long a call may take, waiting for a worker included; callers may ask for less. Then its worker is killed.", millisecond_ns,
     7 * 86400 * second_ns},
    {"plugin.start_deadline", ConfigType::duration, "10s", "How long loading it may take.", millisecond_ns, 3600 * second_ns},
    {"plugin.waiting_max", ConfigType::integer, "256", "Calls that may wait for a worker. More would block.", 1, 65536},
    {"plugin.user", ConfigType::text, "",
     "User, by number or name, whose rights the workers have: for an agent that is started as root (CAP_SETUID, CAP_SETGID, "
     "CAP_KILL). Empty: the agent's own."},
    {"plugin.nice", ConfigType::integer, "0", "How much its workers stand back for others, as nice does.", 0, 19},
    {"plugin.cores", ConfigType::texts, "", "Cores its workers may use, such as 2 or 4-7. Empty: all, also if agent.pin is set."},
};

constexpr ConfigKey pool_keys[] = {
    {"pool.name", ConfigType::text, "", "The pool with its options, as programs would name it. Has to be there."},
    {"pool.user", ConfigType::text, "", "Whose it is, by number or name. Empty: the agent's own user's."},
};

constexpr ConfigKey trigger_keys[] = {
    {"trigger.pool", ConfigType::text, "", "The pool, as programs name it. Has to be there."},
    {"trigger.row", ConfigType::text, "*", "Pattern of rows whose objects the function is called on."},
    {"trigger.column", ConfigType::text, "*", "Pattern of their columns."},
    {"trigger.plugin", ConfigType::text, "", "Name of a [[plugin]]. Has to be there."},
    {"trigger.function", ConfigType::text, "", "One of its functions. Has to be there."},
    {"trigger.result_column", ConfigType::text, "",
     "Column under which an output is put, in the object's row; several outputs have . and their own names behind it. Objects of such "
     "columns are never the trigger's inputs. Has to be there."},
    {"trigger.every", ConfigType::duration, "0s", "Not 0: the function is called without objects, again and again after so long.", 0,
     7 * 86400 * second_ns},
    {"trigger.result_row", ConfigType::text, "", "The row of such calls' outputs."},
    {"trigger.queue", ConfigType::integer, "64", "Objects that may wait for their call; they stay in memory until then. What comes when it is full is left out, and counted.", 1, 65536},
    {"trigger.calls", ConfigType::integer, "4", "Calls under way at a time.", 1, 256},
};

const ConfigList lists[] = {
    {"plugin", "functions of users that this agent runs ([plugin.md](plugin.md)). Nothing that is not named here is ever loaded.",
     plugin_keys},
    {"pool", "pools that are there from the start, on all members, so that programs name them without options ([pool.md](pool.md)).",
     pool_keys},
    {"host", "machines whose numbers this agent asks offpath-sampler for ([exchange.md](exchange.md)).", host_keys()},
    {"source", "numbers of the machine that the agent itself runs on ([exchange.md](exchange.md)). The same in the configuration of offpath-sampler.",
     source_keys()},
    {"trigger", "functions that are called on objects as they come into a pool, or again and again ([pool.md](pool.md)).", trigger_keys},
    {"exchange", "what this agent and others tell each other, round by round ([exchange.md](exchange.md)); the same on all of them.", exchange_keys},
};

// "agent.toml:12: agent.listen: what is wrong"
template <class... Args>
tl::unexpected<Failure> bad_value(const Config& config, std::string_view key, fmt::format_string<Args...> format,
                                  Args&&... args) {
  return fail(Error::invalid, "{}: {}: {}", config.source(key), key, fmt::format(format, std::forward<Args>(args)...));
}

Result<LogLevel> parse_level(const Config& config) {
  static constexpr std::string_view names[] = {"debug", "info", "warning", "error", "off"};
  const std::string& level = config.text("log.level");
  for (std::size_t i = 0; i < std::size(names); ++i) {
    if (level == names[i]) return static_cast<LogLevel>(i);
  }
  return bad_value(config, "log.level", "'{}' is none of debug, info, warning, error, off", level);
}

// A user's number, or the number of the user of that name.
Result<uid_t> parse_user(const Config& config, std::string_view key, const std::string& user) {
  uid_t uid = 0;
  const char* end = user.data() + user.size();
  if (auto [rest, error] = std::from_chars(user.data(), end, uid); error == std::errc() && rest == end) return uid;
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

// Set for each process by Open MPI, by Slurm, and by MPICH and Intel MPI.
std::int64_t index_of(const Config& config) {
  if (config.integer("group.index") >= 0) return config.integer("group.index");
  for (const char* variable : {"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID"}) {
    const char* text = std::getenv(variable);
    std::int64_t index = 0;
    if (text != nullptr && std::from_chars(text, text + std::strlen(text), index).ec == std::errc() && index >= 0) return index;
  }
  return 0;
}

std::string with_index(std::string text, std::int64_t index) {
  constexpr std::string_view mark = "{index}";
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark)) text.replace(at, mark.size(), fmt::format("{}", index));
  return text;
}

Status check_member_addresses(const Config& config, std::string_view key) {
  for (const std::string& text : config.texts(key))
    if (auto address = link::Address::parse(text); !address) return bad_value(config, key, "{}", address.error().message);
  return {};
}

Result<std::vector<link::Address>> parse_listen(const Config& config) {
  std::vector<link::Address> addresses;
  for (const std::string& text : config.texts("agent.listen")) {
    auto address = link::Address::parse(with_index(text, index_of(config)));
    if (!address) return bad_value(config, "agent.listen", "{}", address.error().message);
    addresses.push_back(std::move(*address));
  }
  if (addresses.empty()) {
    OFP_ASSIGN(link::Address address, default_address());
    addresses.push_back(std::move(address));
  }
  return addresses;
}

Result<std::optional<link::Address>> parse_http(const Config& config) {
  const std::string text = with_index(config.text("agent.http"), index_of(config));
  if (text.empty()) {
    if (!config.texts("agent.listen").empty()) return std::optional<link::Address>();
    OFP_ASSIGN(link::Address beside, default_address());
    beside.path.replace(beside.path.rfind('/'), std::string::npos, "/http.sock");
    return std::optional(std::move(beside));
  }
  auto address = link::Address::parse(text.starts_with("unix:") ? text : "tcp:" + text);
  if (!address) return bad_value(config, "agent.http", "'{}' is neither HOST:PORT nor unix:/path", text);
  return std::optional(std::move(*address));
}

bool is_in_group(const Config& config) {
  return !config.texts("group.members").empty() || !config.texts("group.join").empty() || config.boolean("group.from_launcher");
}

// In a group names have to be different, on one machine too.
std::string name_of(const Config& config) {
  if (!config.text("agent.name").empty()) return with_index(config.text("agent.name"), index_of(config));
  return is_in_group(config) ? fmt::format("{}-{}", machine_name(), index_of(config)) : machine_name();
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

Result<std::vector<unsigned>> parse_cores(const Config& config) {
  constexpr unsigned core_max = 4095;
  std::vector<unsigned> cores;
  for (const std::string& text : config.texts("plugin.cores")) {
    const std::size_t dash = text.find('-');
    unsigned first = 0, last = 0;
    const char *middle = text.data() + std::min(dash, text.size()), *end = text.data() + text.size();
    auto read = std::from_chars(text.data(), middle, first);
    bool whole = read.ec == std::errc() && read.ptr == middle;
    last = first;
    if (dash != std::string::npos) {
      read = std::from_chars(middle + 1, end, last);
      whole = whole && read.ec == std::errc() && read.ptr == end;
    }
    if (!whole || last < first || last > core_max)
      return bad_value(config, "plugin.cores", "'{}' is neither a core such as 2 nor a range such as 4-7", text);
    for (unsigned core = first; core <= last; ++core) cores.push_back(core);
  }
  return cores;
}

Status parse_plugin_user(const Config& config, plugin::PluginOptions& options) {
  const std::string& user = config.text("plugin.user");
  if (user.empty()) return {};
  uid_t uid = 0;
  const char* end = user.data() + user.size();
  const auto [rest, error] = std::from_chars(user.data(), end, uid);
  const passwd* entry = error == std::errc() && rest == end ? getpwuid(uid) : getpwnam(user.c_str());
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
    if (!options.path.starts_with('/')) return bad_value(one, "plugin.path", "'{}' is not an absolute path", options.path);
    options.workers = static_cast<unsigned>(one.integer("plugin.workers"));
    options.memory_bytes = one.bytes("plugin.memory");
    options.deadline_ns = one.duration_ns("plugin.deadline");
    options.start_deadline_ns = one.duration_ns("plugin.start_deadline");
    options.waiting_max = static_cast<std::size_t>(one.integer("plugin.waiting_max"));
    OFP_TRY(parse_plugin_user(one, options));
    options.nice = static_cast<int>(one.integer("plugin.nice"));
    OFP_ASSIGN(options.cores, parse_cores(one));
    plugins.push_back(std::move(options));
  }
  return plugins;
}

Result<std::vector<PoolSettings>> parse_pools(const Config& config) {
  std::vector<PoolSettings> pools;
  for (const Config& one : config.list("pool")) {
    PoolSettings made;
    made.name = one.text("pool.name");
    if (sift::SiftService::is_own(made.name))
      return bad_value(one, "pool.name", "'{}' is sifted among the members that live when it is made, which nobody does yet at the start",
                       made.name);
    const auto name = pool::parse_pool_name(made.name);
    if (!name) return bad_value(one, "pool.name", "{}", name.error().message);
    if (!one.text("pool.user").empty()) {
      OFP_ASSIGN(made.user, parse_user(one, "pool.user", one.text("pool.user")));
    }
    pools.push_back(std::move(made));
  }
  return pools;
}

Result<std::vector<pool::TriggerOptions>> parse_triggers(const Config& config, const std::vector<plugin::PluginOptions>& plugins) {
  std::vector<pool::TriggerOptions> triggers;
  for (const Config& one : config.list("trigger")) {
    pool::TriggerOptions made;
    made.pool = one.text("trigger.pool");
    if (auto name = pool::parse_pool_name(made.pool); !name) return bad_value(one, "trigger.pool", "{}", name.error().message);
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
      return bad_value(one, "trigger.result_column", "{} bytes, 1 to {} are allowed", made.result_column.size(), wire::key_bytes_max);
    made.every_ns = one.duration_ns("trigger.every");
    made.result_row = one.text("trigger.result_row");
    if (made.every_ns == 0 && !made.result_row.empty())
      return bad_value(one, "trigger.result_row", "results go under the row of their object; with trigger.every they have this one");
    if (made.every_ns != 0 && (made.row != "*" || made.column != "*"))
      return bad_value(one, "trigger.every", "calls on a timer have no objects: leave trigger.row and trigger.column out");
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
  if (flight.token_file.empty()) return bad_value(config, "flight.listen", "flight.token_file is needed as well, and not set");
  if (address->kind == Kind::tls && (flight.tls_certificate_file.empty() || flight.tls_key_file.empty()))
    return bad_value(config, "flight.listen", "tls needs flight.tls_certificate and flight.tls_key");
  return std::optional(std::move(flight));
}

void read_limits(const Config& config, AgentSettings& settings) {
  DispatcherOptions& options = settings.dispatcher;
  options.mover.memory_bytes_max = config.bytes("memory.bytes_max");
  options.mover.user_bytes_max = config.bytes("memory.user_bytes_max");
  options.mover.window_bytes = config.bytes("memory.window");
  options.mover.prepared_bytes_max = config.bytes("memory.prepared_max");
  options.mover.streams_max = static_cast<std::uint32_t>(config.integer("limits.streams_max"));
  options.mover.user_streams_max = static_cast<std::uint32_t>(config.integer("limits.user_streams_max"));
  options.buffers = {config.bytes("memory.cached_max"), config.boolean("memory.huge_pages")};
  options.pools.table.waiting_max = static_cast<std::size_t>(config.integer("limits.waiting_max"));
  options.pools.table.leases_max = static_cast<std::size_t>(config.integer("limits.leases_max"));
  options.queries.query.threads = static_cast<unsigned>(config.integer("queries.threads"));
  options.queries.query.memory_bytes_max = config.bytes("queries.memory_max");
  options.queries.query.step_bytes = std::min(options.queries.query.step_bytes, options.queries.query.memory_bytes_max / 4);
  options.queries.running_max = static_cast<std::size_t>(config.integer("queries.running_max"));
  options.queries.open_max = static_cast<std::size_t>(config.integer("queries.open_max"));
  options.channels.pull_slice_bytes = config.bytes("loop.pull_slice");
  options.channels.asked_slice_bytes = config.bytes("loop.asked_slice");
  options.channels.idle_before_sleep_ns = config.duration_ns("loop.spin");
  options.channels.clock = monotonic_ns;
  settings.loop.spin_ns = config.duration_ns("loop.spin");
  settings.jobs.threads = static_cast<unsigned>(config.integer("jobs.threads"));
  settings.jobs.queue_max = static_cast<std::size_t>(config.integer("jobs.queue_max"));
  settings.channels_max = static_cast<std::size_t>(config.integer("limits.channels_max"));
  settings.user_channels_max = static_cast<std::size_t>(config.integer("limits.user_channels_max"));
  settings.handshakes_max = static_cast<std::size_t>(config.integer("limits.handshakes_max"));
  settings.segments.count_max = static_cast<std::uint32_t>(config.integer("limits.segments_max"));
  settings.silence_ns = config.duration_ns("limits.silence");
  settings.segments.bytes_max = config.bytes("limits.segment_bytes_max");
}

}  // namespace

std::span<const ConfigKey> agent_keys() noexcept { return keys; }
std::span<const ConfigList> agent_lists() noexcept { return lists; }

Status check_plugins(const std::vector<plugin::PluginOptions>& plugins) {
  for (const plugin::PluginOptions& options : plugins) {
    if (const auto file = plugin::find_plugin_file(options.path); !file)
      return fail(Error::invalid, "plug-in '{}': {}", options.name, file.error().message);
    if (options.user && *options.user != geteuid() && !plugin::may_change_user())
      return fail(Error::denied, "plug-in '{}' is to run as user {} (plugin.user), which takes CAP_SETUID, CAP_SETGID and CAP_KILL: start the "
                  "agent as root, or leave it out", options.name, *options.user);
  }
  return {};
}

std::string machine_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "agent";
}

Result<link::Address> default_address() {
  if (geteuid() == 0) return link::Address::parse("unix:/run/offpath/agent.sock");
  const char* directory = std::getenv("XDG_RUNTIME_DIR");
  if (directory == nullptr || *directory != '/') {
    return fail(Error::invalid,
                "agent.listen is empty and XDG_RUNTIME_DIR is '{}', no directory to listen in: "
                "name an address, such as --listen unix:/path/agent.sock",
                directory == nullptr ? "" : directory);
  }
  return link::Address::parse(fmt::format("unix:{}/offpath/agent.sock", directory));
}

Result<AgentSettings> read_settings(const Config& config) {
  AgentSettings settings;
  settings.name = name_of(config);
  if (settings.name.size() > 255) return bad_value(config, "agent.name", "{} bytes, at most 255", settings.name.size());
  OFP_ASSIGN(settings.listen, parse_listen(config));
  OFP_ASSIGN(settings.http, parse_http(config));
  OFP_ASSIGN(settings.flight, parse_flight(config));
  OFP_ASSIGN(settings.log_level, parse_level(config));
  OFP_ASSIGN(settings.allow_uids, parse_users(config));
  OFP_ASSIGN(settings.plugins, parse_plugins(config));
  OFP_ASSIGN(settings.pools, parse_pools(config));
  OFP_ASSIGN(settings.dispatcher.computes.triggers, parse_triggers(config, settings.plugins));
  OFP_ASSIGN(settings.sampling, read_sampling(config));
  settings.dispatcher.gauges_interval_ns = settings.sampling.interval_ns;
  settings.dispatcher.real_clock = real_ns;
  OFP_ASSIGN(settings.dispatcher.exchanges, parse_exchanges(config));
  if (config.integer("agent.pin") >= 0) settings.pin = static_cast<unsigned>(config.integer("agent.pin"));
  settings.spill_directory = with_index(config.text("agent.spill_directory"), index_of(config));
  if (!settings.spill_directory.empty() && !settings.spill_directory.starts_with('/'))
    return bad_value(config, "agent.spill_directory", "'{}' is not an absolute path", settings.spill_directory);
  auto profile = link::find_profile(config.text("agent.profile"));
  if (!profile) return bad_value(config, "agent.profile", "{}", profile.error().message);
  settings.profile = std::move(*profile);
  read_limits(config, settings);
  OFP_TRY(read_group(config, settings));
  settings.key_file = config.text("security.key_file");
  settings.old_key_files = config.texts("security.old_key_files");
  if (!settings.old_key_files.empty() && settings.key_file.empty())
    return bad_value(config, "security.old_key_files", "old keys go with a new one: set security.key_file");
  settings.tls_certificate_file = config.text("security.tls_certificate");
  settings.tls_key_file = config.text("security.tls_key");
  if (settings.tls_certificate_file.empty() != settings.tls_key_file.empty()) {
    return fail(Error::invalid, "security.tls_certificate is '{}' and security.tls_key '{}': both are needed, or none",
                settings.tls_certificate_file, settings.tls_key_file);
  }
  settings.insecure_network = config.boolean("security.insecure_network");
  settings.keep_ptrace = config.boolean("security.keep_ptrace");
  settings.force_staging = config.boolean("security.force_staging");
  return settings;
}

Result<bool> is_loopback(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE;
  addrinfo* answer = nullptr;
  if (int code = getaddrinfo(host.c_str(), nullptr, &wanted, &answer); code != 0) {
    return fail(Error::not_found, "host '{}': {}", host, gai_strerror(code));
  }
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(answer, freeaddrinfo);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    if (each->ai_family == AF_INET) {
      const auto& address = *reinterpret_cast<const sockaddr_in*>(each->ai_addr);
      if (ntohl(address.sin_addr.s_addr) >> 24 != 127) return false;
    } else if (each->ai_family == AF_INET6) {
      const auto& address = *reinterpret_cast<const sockaddr_in6*>(each->ai_addr);
      if (!IN6_IS_ADDR_LOOPBACK(&address.sin6_addr)) return false;
    } else {
      return false;
    }
  }
  return true;
}

Result<std::vector<std::string>> check_exposure(const AgentSettings& settings) {
  std::vector<std::string> warnings;
  for (const link::Address& address : settings.listen) {
    if (address.kind == Kind::unix_socket) continue;
    if (settings.key_file.empty()) {
      return fail(Error::denied,
                  "{}: programs that connect by network prove that they know a key, and "
                  "security.key_file is not set",
                  address.text());
    }
    if (address.kind == Kind::tls && settings.tls_certificate_file.empty()) {
      return fail(Error::denied, "{}: TLS needs security.tls_certificate and security.tls_key", address.text());
    }
    OFP_ASSIGN(const bool local, is_loopback(address.host));
    if (local) continue;
    if (address.kind == Kind::tls) {
      warnings.push_back(fmt::format("listening beyond this machine at {}", address.text()));
    } else if (settings.insecure_network) {
      warnings.push_back(
          fmt::format("INSECURE: at {} everybody on the network between can read and change what "
                      "programs send{}",
                      address.text(), address.kind == Kind::tcp ? "; use tls" : ""));
    } else if (address.kind == Kind::verbs) {
      return fail(Error::denied,
                  "{} is reachable from other machines, and RDMA has no encryption: set security.insecure_network = true "
                  "(--insecure-network) if the fabric is trusted, or use tls:{}:{}",
                  address.text(), address.host, address.port);
    } else {
      return fail(Error::denied,
                  "{} is reachable from other machines without encryption: use tls:{}:{}, or set "
                  "security.insecure_network = true (--insecure-network)",
                  address.text(), address.host, address.port);
    }
  }
  if (settings.flight && settings.flight->listen.kind == Kind::tcp && !settings.insecure_network) {
    OFP_ASSIGN(const bool local, is_loopback(settings.flight->listen.host));
    if (!local)
      return fail(Error::denied,
                  "flight.listen {} is reachable from other machines without encryption, its token too: use tls:{}:{}, or set "
                  "security.insecure_network = true (--insecure-network)",
                  settings.flight->listen.text(), settings.flight->listen.host, settings.flight->listen.port);
  }
  if (settings.http && settings.http->kind != Kind::unix_socket) {
    OFP_ASSIGN(const bool local, is_loopback(settings.http->host));
    if (!local && !settings.insecure_network) {
      return fail(Error::denied,
                  "agent.http {}:{} is reachable from other machines: use 127.0.0.1, or set "
                  "security.insecure_network = true (--insecure-network)",
                  settings.http->host, settings.http->port);
    }
    if (!local) warnings.push_back("INSECURE: everybody on the network can read this agent's status over HTTP");
  }
  return warnings;
}

}  // namespace offpath::agent
