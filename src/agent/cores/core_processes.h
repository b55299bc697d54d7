// The first process of an agent with several cores (agent.cores). It binds every address, starts a process for each
// core, accepts the programs' connections and hands each to the core with the fewest. It serves no program itself, and
// reads nothing that a program sends.
//
//   programs --> listening sockets --> [ this process ] --> hand-over sockets --> core 0, core 1, …   each an Agent
//   members  --> each core's own socket ------------------------------------>
//
// A core that ends is restarted, while the others continue. If it ends again and again, or cannot be started, the agent
// ends. Cores end when this process does: their control socket tells them.
#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/config/settings.h"
#include "agent/cores/core_ends.h"
#include "agent/signals.h"
#include "agent/socket_file.h"
#include "base/clock.h"

namespace offpath::agent {

// When a core that has ended is restarted.
class Restarts {
 public:
  static constexpr std::size_t deaths_max = 5;  // within `counted_ns`: the next one ends the agent
  static constexpr TimeNs counted_ns = 60 * second_ns, pause_ns = second_ns;

  // The core has ended now. The time to start it: at once if it is the first end in a while; none: no more.
  [[nodiscard]] std::optional<TimeNs> after_end(TimeNs now);

 private:
  std::deque<TimeNs> ends_;
};

class CoreProcesses {
 public:
  // Runs one core in its new process, and returns its exit status.
  using RunCore = std::function<int(AgentSettings settings, CoreEnds ends)>;
  // Called once, when all cores serve; where clients of Flight connect, or nothing.
  using OnReady = std::function<Status(const std::string& flight)>;

  // Binds the addresses; ports that were left open are chosen.
  [[nodiscard]] static Result<std::unique_ptr<CoreProcesses>> make(const AgentSettings& settings, RunCore run_core);
  ~CoreProcesses();
  CoreProcesses(const CoreProcesses&) = delete;
  CoreProcesses& operator=(const CoreProcesses&) = delete;

  [[nodiscard]] const AgentSettings& settings() const noexcept { return settings_; }
  // Starts the cores and serves until it is asked to end, or cannot continue. Returns the exit status.
  [[nodiscard]] Result<int> run(Signals& signals, const OnReady& on_ready);
  [[nodiscard]] std::vector<pid_t> processes() const;

 private:
  struct Listener {
    Fd socket;
    link::Address address;
    std::unique_ptr<SocketFile> file;
  };
  struct Core {
    std::vector<Listener> own;  // for members of the group
    Listener pages;             // without a socket: no pages are served
    pid_t process = 0;          // 0: it does not run
    Fd process_fd, control;
    std::vector<Fd> giving;  // one for each of the agent's listeners
    bool serves = false;
    std::uint64_t given = 0;
    Restarts restarts;
    std::optional<TimeNs> start_at;
  };

  CoreProcesses(AgentSettings settings, RunCore run_core)
      : settings_(std::move(settings)), run_core_(std::move(run_core)) {}
  [[nodiscard]] Status bind();
  [[nodiscard]] Result<Listener> listen(link::Address address, bool everyone) const;
  [[nodiscard]] Status start(unsigned core);
  [[nodiscard]] CoreEnds ends_of(unsigned core, std::vector<Fd> taking, Fd control);
  void accept_programs(std::size_t listener);
  [[nodiscard]] bool give_away(std::size_t listener, int connection);
  void hear(unsigned core);
  void on_end(unsigned core, TimeNs now);
  void stop(int status);
  void tell(int signal) const;
  [[nodiscard]] bool all_serve() const;
  void wait(Signals& signals, TimeNs now);

  AgentSettings settings_;
  RunCore run_core_;
  std::shared_ptr<CoreLoads> loads_;
  std::vector<Listener> listeners_;  // of programs
  Listener pages_;                   // of all cores
  std::vector<Core> cores_;
  struct Waiting {
    Fd connection;
    std::size_t listener;
  };
  std::optional<Waiting> waiting_;  // accepted, and no core could take it yet
  TimeNs rests_until_ = 0;          // no connection could be accepted
  std::string flight_;
  bool has_served_ = false;
  std::optional<int> stopping_;  // with this exit status
};

}  // namespace offpath::agent
