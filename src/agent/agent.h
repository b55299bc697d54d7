// The daemon: constructs every part and joins them. Read this first in src/agent; then agent.cc (the order of polling),
// config/settings.h (every setting), services/dispatcher.h (all services) and status/status.h.
//
//   programs --> Acceptor --> Dispatcher (channels, mover, pools)      on one Loop, one thread
//                                  |  jobs
//                               JobPool                                 a few threads; others for the disk and for
//                                                                       files
//   other agents <--> Group (members, channels to them)                 the same loop
//   hosts     <--> Samplers                                             the same loop
//                            PluginProcesses                            users' functions, in processes of their own
//   people, Prometheus --> HttpServer --> StatusBoard                   two threads
//   Flight's clients --> FlightEndpoint, which asks the loop            gRPC's threads
//
// There is one loop for channels: state is made for one core. With agent.cores an agent is several of these, each in a
// process of its own, and each a member of the group (agent/cores). Programs' TCP connections may have further loops
// (tcp.cores), each on a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actuator/keeper_process.h"
#include "agent/acceptor.h"
#include "agent/agent_group.h"
#include "agent/channel_watch.h"
#include "agent/config/settings.h"
#include "agent/cores/core_ends.h"
#include "agent/cores/served_core.h"
#include "agent/http_server.h"
#include "agent/recent_lines.h"
#include "agent/signals.h"
#include "loop/mailbox.h"

namespace offpath::agent {

class Actuators;
class AlarmWatch;
class Dispatcher;
class FlightEndpoint;
class PluginProcesses;
class SampleRecords;
class Samplers;
class TcpPrograms;
class TcpRelay;
struct TcpStatus;

extern const char* const agent_version;

class Agent {
 public:
  // Gives up privileges and installs the list of permitted system calls. Returns the list in force; empty if the kernel
  // does not support it.
  using Confine = std::function<Result<std::optional<plugin::Sandbox>>()>;
  // Reads keys, binds every address, calls `confine` and starts threads. Afterwards programs may connect; run() serves
  // them. `keeper`: of the settings' actuators, if there are any. `core`: this is one core of an agent with several.
  [[nodiscard]] static Result<std::unique_ptr<Agent>> make(AgentSettings settings,
                                                           std::optional<actuator::KeeperProcess> keeper,
                                                           const Confine& confine,
                                                           std::optional<CoreEnds> core = std::nullopt);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  enum class End { asked, replaced };
  // Runs until SIGTERM or SIGINT, or until another process has this agent's name in the group: two would serve the
  // programs of one name. Calls `reload` on SIGHUP.
  [[nodiscard]] End run(Signals& signals, const std::function<void()>& reload);

  // Reads keys and certificate again, for programs that connect later; existing channels continue. On any error the
  // previous ones stay in force.
  [[nodiscard]] Status change_keys(const AgentSettings& settings);

  // The source of the newest log lines in the status. Called before run().
  void show_lines(std::function<std::vector<LogLine>()> lines) { lines_ = std::move(lines); }

  [[nodiscard]] const std::vector<link::Address>& addresses() const noexcept { return settings_.listen; }
  [[nodiscard]] std::string http() const;    // empty if it is not served
  [[nodiscard]] std::string flight() const;  // likewise
  [[nodiscard]] const std::string& name() const noexcept { return settings_.name; }

 private:
  // Polls the Dispatcher from the loop.
  class Channels final : public loop::Poller {
   public:
    explicit Channels(Agent& agent) : agent_(agent) {}
    bool poll(TimeNs now) override;
    bool fall_asleep(TimeNs now) override;
    TimeNs next_deadline() const override;
    [[nodiscard]] bool expects_more() const override;

   private:
    Agent& agent_;
  };

  explicit Agent(AgentSettings settings);
  [[nodiscard]] Status prepare(const Confine& confine);
  [[nodiscard]] Status listen();
  [[nodiscard]] Status join_parts();
  void make_jobs();
  void make_dispatcher();
  void join_connections();
  [[nodiscard]] Status join_group();
  void join_plugins();
  [[nodiscard]] Status join_samplers();  // and what is made from their samples
  void join_status();
  [[nodiscard]] Status may_welcome(uid_t user) const;
  void on_arrival(Acceptor::Arrival arrival, TimeNs now);
  [[nodiscard]] Result<Fd> listen_for_pages();  // null if it is optional and failed
  [[nodiscard]] Status open_disk();
  [[nodiscard]] Status read_trees();
  [[nodiscard]] Status make_relay(std::shared_ptr<ReceivedFds> received);
  [[nodiscard]] Status join_cores();
  [[nodiscard]] Status start_pages(Fd listener);
  void publish(std::optional<TcpStatus> tcp, TimeNs now);
  void close_channels(const Failure& why, bool tells);

  AgentSettings settings_;
  std::function<std::vector<LogLine>()> lines_;
  std::shared_ptr<link::CardDevices> devices_;  // of links by cards: to programs, and to members
  std::shared_ptr<const link::AgentPolicy> policy_;
  std::uint64_t incarnation_ = 0;
  TimeNs started_at_ = 0;
  std::string replaced_;            // the process that took over; empty: none
  std::optional<ServedCore> core_;  // empty: this is all of the agent
  bool arrival_handed_ = false;     // of the channel that is being added
  // Destroyed in reverse order: HTTP before the board, jobs before the state that they use.
  std::unique_ptr<loop::Loop> loop_;
  std::unique_ptr<Acceptor> acceptor_;
  std::optional<ChannelWatch> channel_watch_;
  std::optional<AgentGroup> group_;
  std::unique_ptr<PluginProcesses> plugins_;
  std::unique_ptr<Samplers> samplers_;
  std::unique_ptr<AlarmWatch> alarms_;
  std::unique_ptr<SampleRecords> records_;
  std::optional<actuator::KeeperProcess> keeper_;  // until it is watched
  std::unique_ptr<Actuators> actuators_;           // null: none is configured
  std::unique_ptr<TcpPrograms> tcp_;               // null: there is no device
  std::unique_ptr<TcpRelay> tcp_relay_;            // null: no other agent has the connections of programs here
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<loop::Mailbox<int>> status_requests_;
  std::unique_ptr<StatusBoard> board_;
  std::unique_ptr<loop::JobPool> jobs_;
  std::unique_ptr<loop::JobPool> file_jobs_;  // for programs' files: a disk may be slow, or a pool large
  std::unique_ptr<loop::JobPool> disk_jobs_;  // threads of their own: each may wait for the disk
  std::optional<plugin::Sandbox> sandbox_;
  Channels channels_{*this};
  std::optional<HttpServer> http_, all_pages_;  // of this process; of all cores
  std::unique_ptr<FlightEndpoint> flight_;      // before the dispatcher and the loop it asks
};

}  // namespace offpath::agent
