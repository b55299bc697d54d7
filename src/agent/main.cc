// offpath-agent: see docs/operate/agent.md.
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "agent/agent.h"
#include "agent/confinement.h"
#include "agent/cores/core_processes.h"
#include "agent/cores/core_settings.h"
#include "agent/cpu_quota.h"
#include "agent/log_sink.h"
#include "agent/ready.h"
#include "agent/socket_file.h"
#include "base/memory_reserve.h"
#include "plugin/system_calls.h"

namespace offpath::agent {

namespace {

// A service manager restarts an agent that failed. One that was replaced would take its name back.
constexpr int exit_failed = 1, exit_usage = 2, exit_replaced = 3;

struct Arguments {
  std::string config_file;
  std::vector<std::pair<std::string, std::string>> values;  // key, value, in the order given
  bool ready = false, print_config = false, check_config = false, reference = false;
  int ready_fd = -1;
};

// Command line options that set a configuration key.
struct KeyOption {
  const char *option, *key, *help;
};
constexpr KeyOption key_options[] = {
    {"--http", "agent.http", "HOST:PORT or unix:/path for metrics and status"},
    {"--memory", "memory.bytes_max", "memory for frames, such as 8GiB"},
    {"--pin", "agent.pin", "core the loop runs on"},
    {"--cores", "agent.cores", "loops, each in a process of its own, over which programs are spread"},
    {"--spill", "agent.spill_directory", "directory for objects of pools with spill"},
    {"--profile", "agent.profile", "slow down to the speed of a device: bluefield2"},
    {"--name", "agent.name", "name of the agent"},
    {"--key-file", "security.key_file", "key shared with programs that connect by network"},
    {"--tls-cert", "security.tls_certificate", "PEM certificate chain for tls addresses"},
    {"--tls-key", "security.tls_key", "PEM private key of the certificate"},
    {"--log-level", "log.level", "debug, info, warning, error, off"},
};

std::string joined(const std::vector<std::string>& texts) { return fmt::format("{}", fmt::join(texts, ",")); }

// Exits the program on --help, --version and wrong usage.
Arguments parse_arguments(int argc, char** argv) {
  Arguments arguments;
  CLI::App app{"Moves data out of the memory of programs, and keeps it as Arrow frames."};
  app.set_version_flag("--version", std::string("offpath-agent ") + agent_version);
  app.add_option("--config", arguments.config_file, "TOML file; command line options override it");
  std::vector<std::string> listen, join, allow_uids, settings;
  app.add_option("--listen", listen, "unix:/path, tcp:, tls:, verbs: or doca:HOST:PORT; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--join", join, "address of a member of the group to join; may be repeated")->allow_extra_args(false);
  bool from_launcher = false;
  app.add_flag("--mpi", from_launcher,
               "form a group with the agents that the same mpirun or srun started (group.from_launcher)");
  app.add_option("--allow-uid", allow_uids, "user who may connect besides root and this one; may be repeated")
      ->allow_extra_args(false);
  std::array<std::string, std::size(key_options)> texts;
  std::array<CLI::Option*, std::size(key_options)> given;
  for (std::size_t i = 0; i < std::size(key_options); ++i) {
    given[i] = app.add_option(key_options[i].option, texts[i],
                              fmt::format("{} ({})", key_options[i].help, key_options[i].key));
  }
  bool insecure = false;
  app.add_flag("--insecure-network", insecure, "allow unencrypted addresses beyond this machine");
  app.add_option("--set", settings, "KEY=VALUE of any key of the configuration; may be repeated")
      ->allow_extra_args(false);
  app.add_flag("--ready", arguments.ready, "print one line of JSON when programs may connect");
  app.add_option("--ready-fd", arguments.ready_fd, "print the line of --ready to this descriptor, which is then closed")
      ->check(CLI::Range(1, 1 << 20));
  app.add_flag("--print-config", arguments.print_config, "print the effective configuration as TOML, and exit");
  app.add_flag("--check-config", arguments.check_config, "check the configuration, and exit");
  app.add_flag("--config-reference", arguments.reference, "print all keys as a Markdown table, and exit");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : exit_usage);
  }
  if (!listen.empty()) arguments.values.emplace_back("agent.listen", joined(listen));
  if (!join.empty()) arguments.values.emplace_back("group.join", joined(join));
  if (from_launcher) arguments.values.emplace_back("group.from_launcher", "true");
  if (!allow_uids.empty()) arguments.values.emplace_back("security.allow_uids", joined(allow_uids));
  for (std::size_t i = 0; i < std::size(key_options); ++i) {
    if (given[i]->count() > 0) arguments.values.emplace_back(key_options[i].key, texts[i]);
  }
  if (insecure) arguments.values.emplace_back("security.insecure_network", "true");
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    arguments.values.emplace_back(setting.substr(0, equals),
                                  equals == std::string::npos ? "" : setting.substr(equals + 1));
  }
  return arguments;
}

Result<Config> read_config(const Arguments& arguments) {
  Config config(agent_keys(), agent_lists());
  if (!arguments.config_file.empty()) {
    OFP_ASSIGN(config, Config::load(agent_keys(), arguments.config_file, agent_lists()));
  }
  for (const auto& [key, value] : arguments.values) OFP_TRY(config.set(key, value));
  return config;
}

Status pin_to(unsigned core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  if (sched_setaffinity(0, sizeof cores, &cores) != 0)
    return fail_errno(errno, fmt::format("agent.pin {}: sched_setaffinity", core));
  return {};
}

// A program that wakes this thread keeps its core until it waits, or until its time slice is over. Otherwise a post
// takes as long as the agent's work for it. Workers that are started later have the usual policy. A failure is ignored.
void let_programs_go_on() noexcept {
  const sched_param none{};
  sched_setscheduler(0, SCHED_BATCH | SCHED_RESET_ON_FORK, &none);
}

// The kernel may end a sleep up to 50 us late, to wake several threads at once: a nap of the loop would take twice as
// long. All threads and processes that are started later inherit this. A failure is ignored.
void let_timers_be_exact() noexcept { prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0); }

void compare_with_machine(const DispatcherOptions& options) {
  const auto machine =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t wanted = options.mover.memory_bytes_max + options.buffers.cached_bytes_max;
  if (wanted > machine) {
    log(LogLevel::warning,
        "memory.bytes_max and memory.cached_max are {:.1f} GiB together, this machine has {:.1f} GiB",
        static_cast<double>(wanted) / (1u << 30), static_cast<double>(machine) / (1u << 30));
  }
}

std::optional<CpuQuota> limit_processor(const AgentSettings& settings) {
  if (settings.profile.cores == 0) return std::nullopt;
  const double cores = settings.profile.cpu_quota((settings.tcp ? settings.tcp->cores : 1) + settings.jobs.threads);
  auto quota = CpuQuota::apply(cores);
  if (!quota) {
    log(LogLevel::warning, "profile {}: only the device's link is imitated, NOT its processor: {}",
        settings.profile.name, quota.error().message);
    return std::nullopt;
  }
  log(LogLevel::info, "profile {}: {:.3f} cores by {}", settings.profile.name, cores, quota->group());
  return std::move(*quota);
}

void reload(const Arguments& arguments, Agent& agent, AgentLog& agent_log) {
  auto config = read_config(arguments);
  auto settings = config ? read_settings(*config) : Result<AgentSettings>(tl::unexpected<Failure>(config.error()));
  Status changed = settings ? agent.change_keys(*settings) : Status(tl::unexpected<Failure>(settings.error()));
  if (!changed) {
    log(LogLevel::error, "SIGHUP: nothing was changed: {}", changed.error().message);
    return;
  }
  agent_log.set_level(settings->log_level);
  log(LogLevel::info,
      "SIGHUP: log.level is {}; keys and certificate were read again, and Flight's token, for later connections and "
      "calls"
      "; all other settings are read at start only",
      config->text("log.level"));
}

// Where former settings outlive a killed keeper (actuators.former).
Result<std::string> former_directory(const AgentSettings& settings) {
  std::string directory = settings.actuators.roots.former;
  if (directory.empty()) {
    const auto beside = std::ranges::find(settings.listen, link::Address::Kind::unix_socket, &link::Address::kind);
    if (beside == settings.listen.end())
      return fail(Error::invalid, "actuators.former is required: no address of agent.listen is a Unix socket");
    OFP_TRY(prepare_directory_of(beside->path, !settings.allow_uids.empty()));
    directory = beside->path.substr(0, beside->path.rfind('/')) + "/actuators";
  }
  OFP_TRY(prepare_directory_of(directory + "/", false));
  return directory;
}

// Before other threads are started, and while this process has its privileges.
Result<std::optional<actuator::KeeperProcess>> start_keeper(const AgentSettings& settings) {
  const ActuatorSettings& actuators = settings.actuators;
  if (actuators.list.empty()) return std::optional<actuator::KeeperProcess>();
  actuator::Roots roots = actuators.roots;
  OFP_ASSIGN(roots.former, former_directory(settings));
  OFP_ASSIGN(actuator::KeeperProcess keeper,
             actuator::KeeperProcess::start(actuators.list, roots, give_up_all_but_files));
  return std::optional(std::move(keeper));
}

bool permits_users(const AgentSettings& settings) {
  return std::ranges::any_of(settings.plugins, [](const auto& options) { return options.user.has_value(); }) ||
         settings.dispatcher.tasks.user_plugins.permitted;
}

// The checks that are made once, at the start, whatever the number of cores.
Status check_start(const AgentSettings& settings) {
  OFP_ASSIGN(const std::vector<std::string> warnings, check_exposure(settings));
  for (const std::string& warning : warnings) log(LogLevel::warning, "{}", warning);
  for (const std::string& left : objects_left_out(settings)) log(LogLevel::warning, "{}", left);
  OFP_TRY(check_plugins(settings.plugins));
  compare_with_machine(settings.dispatcher);
  return {};
}

void tell_addresses(const ReadyFacts& facts) {
  for (const link::Address& address : facts.addresses) log(LogLevel::info, "listening at {}", address.text());
  if (!facts.http.empty()) log(LogLevel::info, "status at {}", facts.http);
  if (!facts.flight.empty()) log(LogLevel::info, "Flight at {}", facts.flight);
}

Status tell_started(const Arguments& arguments, const ReadyFacts& facts) {
  tell_addresses(facts);
  const std::string line = ready_line(facts);
  if (arguments.ready) OFP_TRY(tell_ready(line, STDOUT_FILENO));
  if (arguments.ready_fd >= 0) OFP_TRY(tell_ready(line, arguments.ready_fd));
  notify_service_manager("READY=1");
  return {};
}

// The parts of a process with a loop, from its start to its end. Those below return the exit status.
struct LoopProcess {
  const Arguments& arguments;
  AgentLog& agent_log;
  Signals& signals;
  std::optional<CoreEnds> core;  // one of several
};

Result<int> serve_loop(LoopProcess process, AgentSettings settings, std::optional<actuator::KeeperProcess> keeper) {
  const MemoryReserve reserve;
  MemoryReserve::protect_this_thread();
  const std::optional<CpuQuota> quota = limit_processor(settings);
  settings.loop.limited = has_quota();
  if (settings.tcp) settings.tcp->loop.limited = settings.loop.limited;
  let_timers_be_exact();
  const bool keep_ptrace = settings.keep_ptrace, permit_users = permits_users(settings);
  const plugin::Sandbox sandbox = settings.sandbox;
  const plugin::StartsPrograms starts{
      .workers = permit_users || !settings.plugins.empty(),
      .commands =
          !settings.alarms.hook.empty() ||
          std::ranges::any_of(settings.sampling.sources, [](const auto& source) { return source->runs_program(); })};
  const std::optional<unsigned> pin = settings.pin;
  const bool batch = settings.batch, is_core = process.core.has_value();
  AgentLog& agent_log = process.agent_log;
  OFP_ASSIGN(const std::unique_ptr<Agent> agent,
             Agent::make(
                 std::move(settings), std::move(keeper),
                 [&]() -> Result<std::optional<plugin::Sandbox>> {
                   OFP_ASSIGN(const bool kept, give_up_capabilities(keep_ptrace, permit_users));
                   if (kept)
                     log(LogLevel::info,
                         "CAP_SYS_PTRACE is kept: memory of every allowed user's programs is read directly");
                   std::optional<plugin::Sandbox> got = sandbox;
                   if (const Status restricted = plugin::restrict_agent(sandbox, starts); !restricted) {
                     log(LogLevel::warning, "security.sandbox: the agent runs without its system call filter: {}",
                         restricted.error().message);
                     got = std::nullopt;
                   }
                   OFP_TRY(agent_log.begin_thread());  // the thread inherits the reduced privileges
                   return got;
                 },
                 std::move(process.core)));
  agent->show_lines([&] { return agent_log.newest_last(); });
  if (pin) OFP_TRY(pin_to(*pin));
  if (batch) let_programs_go_on();
  if (!is_core)
    OFP_TRY(tell_started(process.arguments,
                         {agent->name(), agent->addresses(), agent->http(), agent->flight(), getpid(), {}}));
  const Agent::End end = agent->run(process.signals, [&] { reload(process.arguments, *agent, agent_log); });
  if (!is_core) notify_service_manager("STOPPING=1");
  return end == Agent::End::replaced ? exit_replaced : 0;
}

Result<int> serve(const Arguments& arguments, AgentSettings settings) {
  OFP_ASSIGN(std::optional<actuator::KeeperProcess> keeper, start_keeper(settings));
  AgentLog agent_log(settings.log_level, {.format = settings.log_format});
  OFP_ASSIGN(Signals signals, Signals::catch_all());
  OFP_TRY(check_start(settings));
  return serve_loop({arguments, agent_log, signals, std::nullopt}, std::move(settings), std::move(keeper));
}

Result<int> serve_core(const Arguments& arguments, AgentSettings settings, CoreEnds core) {
  AgentLog agent_log(settings.log_level, {.format = settings.log_format, .label = fmt::format("core {}: ", core.core)});
  OFP_ASSIGN(Signals signals, Signals::catch_all());
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);  // those that came before are handled now
  return serve_loop({arguments, agent_log, signals, std::move(core)}, std::move(settings), std::nullopt);
}

// The process of one core. Nothing may leave it but its status: what is behind it on the stack is another process's.
int run_core(const Arguments& arguments, AgentSettings settings, CoreEnds core) noexcept try {
  const unsigned number = core.core;
  const Result<int> ended = serve_core(arguments, std::move(settings), std::move(core));
  if (ended) return *ended;
  std::fprintf(stderr, "offpath-agent: core %u: %s\n", number, ended.error().message.c_str());
  return ended.error().code == Error::invalid ? exit_usage : exit_failed;
} catch (const std::exception& error) {
  std::fprintf(stderr, "offpath-agent: %s\n", error.what());
  return exit_failed;
}

// The first process of several; see agent/cores/core_processes.h.
Result<int> serve_cores(const Arguments& arguments, const AgentSettings& settings) {
  const AgentLog agent_log(settings.log_level, {.format = settings.log_format});
  OFP_ASSIGN(Signals signals, Signals::catch_all());
  OFP_TRY(check_start(settings));
  OFP_ASSIGN(const std::unique_ptr<CoreProcesses> cores,
             CoreProcesses::make(settings, [&](AgentSettings own, CoreEnds ends) {
               return run_core(arguments, std::move(own), std::move(ends));
             }));
  OFP_TRY(give_up_capabilities(settings.keep_ptrace, permits_users(settings)));  // cores keep of these what they need
  const auto on_ready = [&](const std::string& flight) {
    const AgentSettings& bound = cores->settings();
    return tell_started(arguments, {bound.name, bound.listen, bound.http ? http_text(*bound.http) : std::string(),
                                    flight, getpid(), cores->processes()});
  };
  OFP_ASSIGN(const int status, cores->run(signals, on_ready));
  notify_service_manager("STOPPING=1");
  return status;
}

Result<int> run_program(int argc, char** argv) {
  OFP_TRY(shut_out_others());
  const Arguments arguments = parse_arguments(argc, argv);
  if (arguments.reference) {
    std::fputs(config_reference(agent_keys(), agent_lists()).c_str(), stdout);
    return 0;
  }
  OFP_ASSIGN(const Config config, read_config(arguments));
  if (arguments.print_config) {
    std::fputs(config.to_toml().c_str(), stdout);
    return 0;
  }
  OFP_ASSIGN(AgentSettings settings, read_settings(config));
  if (arguments.check_config) {
    OFP_ASSIGN(const std::vector<std::string> warnings, check_exposure(settings));
    OFP_TRY(check_plugins(settings.plugins));
    for (const std::string& warning : warnings) std::fprintf(stderr, "offpath-agent: warning: %s\n", warning.c_str());
    std::puts("the configuration is valid");
    return 0;
  }
  return settings.cores > 1 ? serve_cores(arguments, settings) : serve(arguments, std::move(settings));
}

}  // namespace

}  // namespace offpath::agent

int main(int argc, char** argv) try {
  const offpath::Result<int> ended = offpath::agent::run_program(argc, argv);
  if (ended) return *ended;
  std::fprintf(stderr, "offpath-agent: %s\n", ended.error().message.c_str());
  return ended.error().code == offpath::Error::invalid ? offpath::agent::exit_usage : offpath::agent::exit_failed;
} catch (const std::exception& error) {  // out of memory or threads: std::bad_alloc, std::system_error
  std::fprintf(stderr, "offpath-agent: %s\n", error.what());
  return offpath::agent::exit_failed;
}
