// Decides which worker runs which call, and handles workers that crash, hang or send invalid messages. A state machine:
// calls, messages and the time are arguments, and its actions are a list of effects. It knows no process, socket or
// clock; src/agent/plugin_processes carries the effects out, and workers_test.cc plays the processes in virtual time.
//
//   call ---> waiting (bounded) ---> a worker that is idle runs it ---> reply   calls of a lane: always the same worker
//
// Lanes of a team have different workers as long as there are enough, because their functions wait for each other.
//
//   worker:   none --start--> starting --ready--> idle <--> running
//                                 |                 ^          |  cancelled: it may still return
//                            unusable, deadline     +---- abandoned
//                                 v                            v  deadline, garbage, grace over
//                              leaving (killed) <--------------+
//                                 | exit
//                                 v
//                               none, for a while (back-off) if it keeps crashing
//
// Workers are started when calls wait for one, and one of each configured plug-in at the beginning, which reports a
// wrong plug-in early. A caller's own plug-in exists from its first call until it has no owner. At the deadline of a
// call its worker is killed, because nothing else stops a function.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "plugin/worker_process.h"

namespace offpath::plugin {

// The result of a call: outputs, or a failure that names plug-in and function.
using Outcome = Result<Outputs>;

struct StartEffect {  // answered by on_ready and so on, or by on_start_failed
  WorkerNumber worker;
  std::size_t plugin;  // in the order of the options; callers' own plug-ins follow
};
struct SendEffect {  // if it fails: on_refused (the call's fault) or on_garbage (the worker's)
  WorkerNumber worker;
  CallNumber number;
  std::shared_ptr<const Call> call;
  TimeNs deadline_ns;
};
struct CancelEffect {
  WorkerNumber worker;
  CallNumber number;
};
struct KillEffect {  // answered by on_exit
  WorkerNumber worker;
};
struct ReplyEffect {  // exactly one for each accepted call
  CallNumber number;
  Outcome outcome;
};
struct AskEffect {  // from a running call; answered by AnswerEffect or by the message service
  Operation operation;
};
struct TakenEffect {  // the memory of this operation's answer is no longer needed
  CallNumber call;
  OperationNumber operation;
};
struct AnswerEffect {
  WorkerNumber worker;
  CallNumber call;
  OperationNumber operation;
  Failure why;
};
using Effect =
    std::variant<StartEffect, SendEffect, CancelEffect, KillEffect, ReplyEffect, AskEffect, TakenEffect, AnswerEffect>;
using Effects = std::vector<Effect>;

struct PluginCounters {
  std::uint64_t calls = 0;  // accepted; each ends in one of the next six
  std::uint64_t done = 0, failed = 0, crashed = 0, timed_out = 0, cancelled = 0, unstarted = 0;
  std::uint64_t refused = 0;  // not accepted: the queue is full, or there is no such function
  std::uint64_t starts = 0, kills = 0, unexpected_exits = 0;
  TimeNs running_ns = 0, waiting_ns = 0;  // of calls
};

struct PluginStatus {
  std::string name, path, failure;  // the last: why it cannot be used, empty if it can
  std::vector<FunctionInfo> functions;
  bool own = false;           // as in PluginOptions
  Confinement confinement{};  // of the most recently started worker
  unsigned workers_max = 0, workers = 0, running = 0;
  std::uint64_t waiting = 0, waiting_max = 0;
  PluginCounters counters;
};

class Workers {
 public:
  static constexpr TimeNs cancel_grace_ns = 100 * millisecond_ns;
  // before a call's deadline, so that its function can return; at most a tenth of the call's time
  static constexpr TimeNs operation_grace_ns = 100 * millisecond_ns;
  static constexpr TimeNs exit_grace_ns = 100 * millisecond_ns;  // for a worker that has closed its socket
  static constexpr TimeNs backoff_first_ns = 10 * millisecond_ns, backoff_most_ns = 5 * second_ns;

  explicit Workers(std::vector<PluginOptions> plugins);

  void start(TimeNs now, Effects& effects);  // one worker of each plug-in

  // Accepts the call, or returns an error: not_found (plug-in or function, with the existing ones), would_block (the
  // queue is full), timeout, or the reason why the plug-in cannot be started. The reply is an effect, perhaps of this
  // very call.
  [[nodiscard]] Result<CallNumber> call(Call call, TimeNs now, Effects& effects);
  bool cancel(CallNumber number, TimeNs now, Effects& effects);  // false: it has ended

  // A call begins when it is sent to its worker, which may be later than the round that assigned it.
  void on_sent(WorkerNumber worker, CallNumber number, TimeNs at);
  // ---- results of effects. Events of workers that have ended are ignored.
  void on_event(WorkerNumber worker, WorkerEvent event, TimeNs now, Effects& effects);
  void on_garbage(WorkerNumber worker, const Failure& failure, TimeNs now, Effects& effects);
  void on_refused(WorkerNumber worker, Failure failure, TimeNs now, Effects& effects);
  void on_start_failed(WorkerNumber worker, const Failure& failure, TimeNs now, Effects& effects);
  void on_exit(WorkerNumber worker, const Exit& exit, TimeNs now, Effects& effects);
  void on_time(TimeNs now, Effects& effects);  // at next_deadline(), or at any time
  [[nodiscard]] TimeNs next_deadline() const noexcept { return next_deadline_; }

  [[nodiscard]] const PluginOptions& options(std::size_t plugin) const;
  // Drops callers' own plug-ins without an owner.
  void end_unused(Effects& effects);
  [[nodiscard]] std::vector<PluginStatus> status() const;
  // Grows when functions of a plug-in become known, or it cannot be used any more.
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }

 private:
  struct Taken {
    CallNumber number;
    std::shared_ptr<const Call> call;
    TimeNs taken_at, deadline_ns;
    std::optional<std::size_t> place{};  // of the only worker that may run it
  };
  struct Worker {
    enum class State { none, starting, idle, running, abandoned, leaving } state = State::none;
    WorkerNumber number = 0;
    TimeNs deadline_ns = never;  // of the start, the call, or the grace period
    TimeNs since = 0;
    Taken taken;                   // running, abandoned
    unsigned lines = 0;            // log lines of this call
    TimeNs deaf_until_ns = never;  // its socket is closed: until then it may end by itself
    bool blame_taken = false;      // leaving: the reason was already reported
  };
  struct Plugin {
    std::size_t number = 0;
    PluginOptions options;
    std::weak_ptr<const PluginOptions> owners{};  // of a caller's own plug-in
    std::vector<Worker> workers;
    std::deque<Taken> waiting;
    // of lanes of teams, as long as these live
    std::map<std::weak_ptr<const std::string>, std::size_t, std::owner_less<>> team_places{};
    std::vector<FunctionInfo> functions;  // empty: unknown
    Confinement confinement;
    std::string failure;    // of the last start
    unsigned failures = 0;  // in a row, without a finished call between them
    TimeNs not_before = 0;
    PluginCounters counters;
  };
  using Counter = std::uint64_t PluginCounters::*;

  [[nodiscard]] Plugin* find_plugin(std::string_view name);
  [[nodiscard]] Plugin& find_own(const std::shared_ptr<const PluginOptions>& own);
  Plugin& add_plugin(PluginOptions options);
  [[nodiscard]] std::pair<Plugin*, Worker*> find_worker(WorkerNumber number);
  [[nodiscard]] Status check_call(Plugin& plugin, const Call& call, TimeNs deadline_ns, TimeNs now) const;
  [[nodiscard]] static std::optional<std::size_t> lane_place(Plugin& plugin, const Call& call);
  [[nodiscard]] static bool lacks(const Plugin& plugin, std::size_t place);
  void start_worker(Plugin& plugin, Worker& worker, TimeNs now, Effects& effects);
  void give_out(Plugin& plugin, TimeNs now, Effects& effects);
  void refuse_unknown(Plugin& plugin, Effects& effects);
  void end_call(Plugin& plugin, const Taken& taken, Counter counter, Outcome outcome, Effects& effects);
  void end_running(Plugin& plugin, Worker& worker, Counter counter, Failure failure, TimeNs now, Effects& effects);
  static void count_time(Plugin& plugin, const Worker& worker, TimeNs now);
  void kill(Plugin& plugin, Worker& worker, Effects& effects);
  void kill_liar(Plugin& plugin, Worker& worker, const std::string& reason, TimeNs now, Effects& effects);
  void count_failure(Plugin& plugin, TimeNs now);
  void fail_start(Plugin& plugin, Worker& worker, const std::string& reason, TimeNs now, Effects& effects);
  void on_ready(Plugin& plugin, Worker& worker, Ready ready, TimeNs now, Effects& effects);
  [[nodiscard]] bool on_operation(Worker& worker, WorkerEvent& event, Effects& effects);
  void on_finished(Plugin& plugin, Worker& worker, Finished finished, TimeNs now, Effects& effects);
  void pass_time(Plugin& plugin, TimeNs now, Effects& effects);
  void find_next_deadline() noexcept;

  std::list<Plugin> plugins_;
  std::uint64_t changes_ = 0;
  std::size_t next_plugin_ = 0;
  CallNumber next_call_ = 1;
  WorkerNumber next_worker_ = 1;
  TimeNs next_deadline_ = never;
};

}  // namespace offpath::plugin
