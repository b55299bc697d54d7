#include "agent/cores/core_processes.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "agent/cores/core_settings.h"
#include "agent/cores/hand_over.h"
#include "base/log.h"
#include "group/core_name.h"

namespace offpath::agent {

using Kind = link::Address::Kind;

namespace {

constexpr unsigned accepted_in_a_look = 16;
constexpr TimeNs accept_rest_ns = 100 * millisecond_ns;
constexpr TimeNs again_ns = 10 * millisecond_ns;  // until a connection that no core could take is offered again
constexpr int exit_failed = 1, exit_replaced = 3;

// Signals that arrive between the fork and the core's own handlers wait for these.
class BlockedSignals {
 public:
  BlockedSignals() noexcept {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("by signal {}", WTERMSIG(status));
  return fmt::format("with status {}", WEXITSTATUS(status));
}

}  // namespace

std::optional<TimeNs> Restarts::after_end(TimeNs now) {
  while (!ends_.empty() && ends_.front() <= now - counted_ns) ends_.pop_front();
  ends_.push_back(now);
  if (ends_.size() > deaths_max) return std::nullopt;
  return ends_.size() == 1 ? now : now + pause_ns;
}

Result<std::unique_ptr<CoreProcesses>> CoreProcesses::make(const AgentSettings& settings, RunCore run_core) {
  std::unique_ptr<CoreProcesses> made(new CoreProcesses(settings, std::move(run_core)));
  OFP_ASSIGN(CoreLoads loads, CoreLoads::make());
  made->loads_ = std::make_shared<CoreLoads>(std::move(loads));
  OFP_TRY(made->bind());
  return made;
}

CoreProcesses::~CoreProcesses() = default;

Result<CoreProcesses::Listener> CoreProcesses::listen(link::Address address, bool everyone) const {
  const bool local = address.kind == Kind::unix_socket;
  if (local) OFP_TRY(prepare_directory_of(address.path, everyone));
  Listener made;
  OFP_ASSIGN(made.socket, link::listen_at(address, everyone));
  if (local) made.file = std::make_unique<SocketFile>(address.path);
  made.address = std::move(address);
  return made;
}

Status CoreProcesses::bind() {
  const bool everyone = !settings_.allow_uids.empty();
  const std::vector<link::Address> asked = settings_.listen;  // a port that is left open is so for the cores, too
  for (link::Address& address : settings_.listen) {
    OFP_ASSIGN(Listener made, listen(address, everyone));
    address = made.address;
    listeners_.push_back(std::move(made));
  }
  cores_.resize(settings_.cores);
  for (unsigned core = 0; core < settings_.cores; ++core) {
    for (const link::Address& address : addresses_of_core(asked, core)) {
      OFP_ASSIGN(Listener made, listen(address, false));
      cores_[core].own.push_back(std::move(made));
    }
  }
  if (!settings_.http) return {};
  auto pages = listen(*settings_.http, false);
  if (!pages) {
    if (settings_.http_named) return tl::unexpected<Failure>(std::move(pages).error());
    log(LogLevel::warning, "no status pages are served: {}", pages.error().message);
    settings_.http.reset();
    return {};
  }
  settings_.http = pages->address;
  pages_ = std::move(*pages);
  for (Core& core : cores_) {
    link::Address own =
        std::ranges::find(core.own, Kind::unix_socket, [](const Listener& each) { return each.address.kind; })->address;
    own.path = pages_beside(own.path);
    OFP_ASSIGN(core.pages, listen(own, false));
  }
  return {};
}

// ---- starting

CoreEnds CoreProcesses::ends_of(unsigned core, std::vector<Fd> taking, Fd control) {
  Core& own = cores_[core];
  CoreEnds ends;
  ends.core = core;
  ends.cores = settings_.cores;
  ends.agent = settings_.name;
  ends.addresses = settings_.listen;
  ends.loads = loads_;
  ends.control = std::move(control);
  for (const Core& each : cores_) {
    std::vector<link::Address>& addresses = ends.of_cores.emplace_back();
    for (const Listener& listener : each.own) addresses.push_back(listener.address);
    if (each.pages.socket && &each != &own)
      ends.others.push_back(
          {group::core_name(settings_.name, static_cast<unsigned>(&each - cores_.data())), each.pages.address.path});
  }
  for (Listener& listener : own.own) ends.listeners.push_back({std::move(listener.socket), listener.address.kind});
  for (std::size_t i = 0; i < taking.size(); ++i)
    ends.listeners.push_back({std::move(taking[i]), listeners_[i].address.kind, true});
  ends.pages = std::move(own.pages.socket);
  ends.pages_at = own.pages.address;
  if (core == 0) {
    ends.agent_pages = std::move(pages_.socket);
    ends.agent_pages_at = settings_.http;
  }
  return ends;
}

Status CoreProcesses::start(unsigned core) {
  Core& own = cores_[core];
  own.start_at.reset();
  own.giving.clear();
  std::vector<Fd> taking;
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    OFP_ASSIGN(HandOverPair pair, make_hand_over());
    own.giving.push_back(std::move(pair.giving));
    taking.push_back(std::move(pair.taking));
  }
  OFP_ASSIGN(HandOverPair control, make_hand_over());
  loads_->begin_anew(core);
  own.given = 0;
  const BlockedSignals blocked;
  const pid_t process = fork();
  if (process < 0) return fail_errno(errno, "fork");
  if (process == 0) {
    AgentSettings settings = settings_of_core(settings_, core);
    CoreEnds ends = ends_of(core, std::move(taking), std::move(control.taking));
    settings.listen = ends.of_cores[core];
    // The rest belongs to other processes. Sockets' files stay: this process has not made them.
    control.giving.reset();
    for (Listener& each : listeners_) each.socket.reset();
    pages_.socket.reset();
    waiting_.reset();
    for (Core& each : cores_) {
      each.giving.clear();
      each.control.reset();
      each.process_fd.reset();
      each.pages.socket.reset();
      for (Listener& listener : each.own) listener.socket.reset();
    }
    std::exit(run_core_(std::move(settings), std::move(ends)));
  }
  own.process = process;
  own.control = std::move(control.giving);
  own.process_fd = Fd(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  if (!own.process_fd) return fail_errno(errno, "pidfd_open");
  return {};
}

std::vector<pid_t> CoreProcesses::processes() const {
  std::vector<pid_t> all;
  for (const Core& core : cores_) all.push_back(core.process);
  return all;
}

// ---- connections

bool CoreProcesses::give_away(std::size_t listener, int connection) {
  std::vector<CoreChoice> choices;
  for (unsigned core = 0; core < cores_.size(); ++core) {
    const CoreLoads::Load load = loads_->of(core);
    const std::uint64_t given = cores_[core].given;
    choices.push_back({cores_[core].serves, load.open + (given - std::min(load.taken, given)), given});
  }
  while (const auto core = least_loaded(choices)) {
    const auto taken = hand_over(cores_[*core].giving[listener].get(), connection);
    if (taken && *taken) {
      ++cores_[*core].given;
      return true;
    }
    choices[*core].serves = false;
  }
  return false;
}

// A connection stays in the kernel's queue until some core can take it: closing it here could wait for what its program
// has sent with it.
void CoreProcesses::accept_programs(std::size_t listener) {
  for (unsigned i = 0; i < accepted_in_a_look && !waiting_; ++i) {
    auto connection = link::accept_from(listeners_[listener].socket.get());
    if (!connection) {
      log(LogLevel::warning, "no connection can be accepted: {}", connection.error().message);
      rests_until_ = monotonic_ns() + accept_rest_ns;
      return;
    }
    if (!*connection) return;
    if (!give_away(listener, connection->get())) waiting_ = Waiting{std::move(*connection), listener};
  }
}

// ---- cores

void CoreProcesses::hear(unsigned core) {
  std::array<char, 512> text;
  const ssize_t got = recv(cores_[core].control.get(), text.data(), text.size(), MSG_DONTWAIT);
  if (got == 0) cores_[core].control.reset();  // it is about to end
  if (got <= 0 || text[0] != core_serves_mark || cores_[core].serves) return;
  cores_[core].serves = true;
  if (core == 0) flight_.assign(text.data() + 1, static_cast<std::size_t>(got) - 1);
  log(LogLevel::info, "core {} serves, as process {}", core, cores_[core].process);
}

void CoreProcesses::on_end(unsigned core, TimeNs now) {
  Core& own = cores_[core];
  int status = 0;
  if (waitpid(own.process, &status, WNOHANG) != own.process) return;
  const pid_t process = std::exchange(own.process, 0);
  const bool served = std::exchange(own.serves, false);
  own.process_fd.reset();
  own.control.reset();
  own.giving.clear();
  if (stopping_) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    log(LogLevel::warning, "core {} (process {}) ended {}", core, process, how_it_ended(status));
    return;
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : exit_failed;
  if (code == exit_replaced) return stop(exit_replaced);
  if (!has_served_) {
    log(LogLevel::error, "core {} could not be started: it ended {}", core, how_it_ended(status));
    return stop(code == 0 ? exit_failed : code);
  }
  own.start_at = own.restarts.after_end(now);
  log(LogLevel::error, "core {} (process {}) ended {}{}; {}", core, process, how_it_ended(status),
      served ? "" : " before it served", own.start_at ? "it is restarted" : "it ended too often, and this agent ends");
  if (!own.start_at) stop(exit_failed);
}

void CoreProcesses::tell(int signal) const {
  for (const Core& core : cores_)
    if (core.process > 0) (void)syscall(SYS_pidfd_send_signal, core.process_fd.get(), signal, nullptr, 0);
}

void CoreProcesses::stop(int status) {
  if (!stopping_) stopping_ = status;
  listeners_.clear();
  waiting_.reset();
  for (Core& core : cores_) core.start_at.reset();
  tell(SIGTERM);
}

bool CoreProcesses::all_serve() const {
  return std::ranges::all_of(cores_, [](const Core& core) { return core.serves; });
}

Result<int> CoreProcesses::run(Signals& signals, const OnReady& on_ready) {
  for (unsigned core = 0; core < cores_.size(); ++core) {
    if (Status started = start(core); !started) {
      stop(exit_failed);
      return tl::unexpected<Failure>(std::move(started).error());
    }
  }
  for (;;) {
    const TimeNs now = monotonic_ns();
    if (stopping_ && std::ranges::all_of(cores_, [](const Core& core) { return core.process == 0; })) break;
    for (unsigned core = 0; core < cores_.size(); ++core) {
      if (!cores_[core].start_at || *cores_[core].start_at > now) continue;
      if (Status started = start(core); !started) {
        log(LogLevel::error, "core {}: {}", core, started.error().message);
        stop(exit_failed);
      }
    }
    if (!has_served_ && !stopping_ && all_serve()) {
      has_served_ = true;
      if (Status told = on_ready(flight_); !told) {
        log(LogLevel::error, "{}", told.error().message);
        stop(exit_failed);
      }
    }
    if (waiting_ && give_away(waiting_->listener, waiting_->connection.get())) waiting_.reset();
    wait(signals, now);
  }
  return *stopping_;
}

// Waits for whatever comes first, and serves it.
void CoreProcesses::wait(Signals& signals, TimeNs now) {
  std::vector<pollfd> looks{{signals.fd(), POLLIN, 0}};
  for (const Core& core : cores_) {
    looks.push_back({core.process_fd.get(), POLLIN, 0});
    looks.push_back({core.serves ? -1 : core.control.get(), POLLIN, 0});
  }
  const bool accepts = !stopping_ && !waiting_ && has_served_ && now >= rests_until_ &&
                       std::ranges::any_of(cores_, [](const Core& core) { return core.serves; });
  const std::size_t first_listener = looks.size();
  for (std::size_t i = 0; accepts && i < listeners_.size(); ++i)
    looks.push_back({listeners_[i].socket.get(), POLLIN, 0});
  TimeNs until = waiting_ ? now + again_ns : now < rests_until_ ? rests_until_ : never;
  for (const Core& core : cores_)
    if (core.start_at) until = std::min(until, *core.start_at);
  const int patience =
      until == never ? -1 : static_cast<int>(std::clamp<TimeNs>((until - now) / millisecond_ns + 1, 0, 1000));
  if (poll(looks.data(), looks.size(), patience) <= 0) return;
  if (looks[0].revents != 0) {
    const Signals::Arrived arrived = signals.take();
    if (arrived.reload) tell(SIGHUP);
    if (arrived.stop) stop(0);
  }
  for (unsigned core = 0; core < cores_.size(); ++core) {
    if (looks[2 + 2 * core].revents != 0) hear(core);
    if (looks[1 + 2 * core].revents != 0) on_end(core, monotonic_ns());
  }
  for (std::size_t i = first_listener; i < looks.size() && !stopping_; ++i)
    if (looks[i].revents != 0) accept_programs(i - first_listener);
}

}  // namespace offpath::agent
