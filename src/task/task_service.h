// Functions over the memory of programs: inputs are pulled, a worker of a plug-in runs the function, outputs are
// pushed. Read wire::TaskRun and plugin/call.h first. A state machine like the other services; it knows no process.
//
//   run ---> waiting ---> pulling ---> ready ---> calling ---> pushing ---> TaskDone
//              |  for those before it,    |          | failed      | failed
//              |  room, memory in use     v          v             v
//              '-----------------------> Failed: dependency, memory, function, deadline, cancelled
//
// Tasks of a session with a lane take each of these steps in the order of submission. A lane always runs on the same
// worker of a plug-in, so a function's static variables are its state from one step of a program to the next. Tasks
// without a lane may overtake each other. Only a few tasks of a session have begun at a time; the rest wait in the list
// without further memory. A task has all its memory when it begins, so a begun task always ends, and waiting tasks get
// its room.
//
//   task_service.cc   requests of programs            task_steps.cc   the steps of tasks, and how they end
//
// Read this first in src/task, then session.h and program.h (tasks, and which comes after which), memory.h,
// resident_memory.h and task_room.h (memory of tasks), user_plugins.h, and lane_messages.h for messages between
// functions.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "channel/ring.h"
#include "service/service.h"
#include "task/lane_messages.h"
#include "task/program.h"
#include "task/session.h"
#include "task/task_limits.h"
#include "task/task_room.h"
#include "task/user_plugins.h"
#include "wire/messages/task_messages.h"

namespace offpath::task {

struct TaskCounters {
  std::uint64_t asked = 0, done = 0, failed = 0,
                cancelled = 0;  // failed: all that did not succeed, including cancelled ones
  std::uint64_t pulled_bytes = 0, pushed_bytes = 0;
  std::uint64_t target_bytes = 0;
  std::uint64_t resident_hits = 0, resident_parts = 0, resident_bytes = 0;
  std::uint64_t sessions = 0, waiting = 0, running = 0;
  TimeNs pulling_ns = 0, queued_ns = 0, running_ns = 0, pushing_ns = 0;
};

class TaskService final : public service::Service {
 public:
  using Limits = TaskLimits;
  // `room` returns whether that much memory may be taken.
  TaskService(Limits limits, std::shared_ptr<service::BufferCache> cache,
              std::function<bool(std::uint64_t bytes)> room);
  ~TaskService() override;

  // ---- Service
  void on_opened(const service::OpenedChannel& channel) override;
  void on_closed(service::ChannelNumber channel, bool usual, TimeNs now, service::Effects& effects) override;
  void on_request(const service::Request& asked, TimeNs now, service::Effects& effects) override;
  void on_transfer(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) override;
  void on_called(std::uint64_t token, Result<plugin::Outputs> outcome, TimeNs now, service::Effects& effects) override;
  void on_time(TimeNs now, service::Effects& effects) override;
  [[nodiscard]] TimeNs next_deadline() const noexcept override;
  // Tasks that wait for room look again when there may be more.
  [[nodiscard]] bool waits_for_memory() const noexcept override { return room_.waits(); }
  void on_memory_freed(TimeNs now, service::Effects& effects) override;

  void set_memory_max(std::function<std::uint64_t()> bytes) {
    room_.set_memory_max(std::move(bytes));
  }  // a task that needs more fails
  [[nodiscard]] std::uint64_t memory_wanted() const;  // by the task that has waited longest

  [[nodiscard]] TaskCounters counters() const;
  // Messages between functions of its sessions. Sessions are opened and closed here; the owner makes all other calls.
  [[nodiscard]] LaneMessages& messages() noexcept { return messages_; }
  [[nodiscard]] const LaneMessages& messages() const noexcept { return messages_; }

 private:
  struct Transfer {
    enum class Kind : std::uint8_t { pull, told, push } kind;
    service::ChannelNumber channel;
    std::uint64_t task;
    std::vector<MemoryPtr> memory{};  // the targets of a pull
    std::uint64_t word = 0;           // the word to push after a pull
    std::vector<TargetPtr> rooms{};   // push: its source, which may outlive its task
    std::vector<MappedOutput> mapped{};
  };
  [[nodiscard]] Status serve(service::ChannelNumber channel, const channel::Entry& request, TimeNs now,
                             service::Effects& effects);
  [[nodiscard]] Status open(service::ChannelNumber channel, const channel::Entry& request, TimeNs now,
                            service::Effects& effects);
  [[nodiscard]] Status run(service::ChannelNumber channel, const channel::Entry& request, TimeNs now,
                           service::Effects& effects);
  [[nodiscard]] Status wait(service::ChannelNumber channel, const channel::Entry& request, service::Effects& effects);
  [[nodiscard]] Status cancel(service::ChannelNumber channel, const channel::Entry& request, TimeNs now,
                              service::Effects& effects);
  [[nodiscard]] Status close(service::ChannelNumber channel, const channel::Entry& request, TimeNs now,
                             service::Effects& effects);
  [[nodiscard]] Result<Session*> own(service::ChannelNumber channel, std::uint64_t number);
  [[nodiscard]] Result<std::unique_ptr<Task>> make_task(Session& session, std::uint64_t ticket, wire::TaskRun asked,
                                                        TimeNs now) const;

  void settle(TimeNs now, service::Effects& effects);
  void advance(Session& session, TimeNs now, service::Effects& effects);
  enum class Begun : std::uint8_t { yes, later, no_room };
  [[nodiscard]] Result<Begun> begin(Task& task, TimeNs now, service::Effects& effects);
  [[nodiscard]] Result<std::vector<ResidentMemory::Found>> find_inputs(const Task& task) const;
  void begin_pulls(Task& task, std::vector<ResidentMemory::Found> found, TimeNs now, service::Effects& effects);
  [[nodiscard]] Status check_pulled(Task& task, TimeNs now, service::Effects& effects);
  void call(Task& task, TimeNs now, service::Effects& effects);
  [[nodiscard]] Status take_outputs(Task& task, plugin::Outputs outputs, std::vector<link::WritePiece>& pieces);
  void cancel_task(Task& task, const std::string& why, TimeNs now, service::Effects& effects);
  void end_task(Task& task, Status status, TimeNs now, service::Effects& effects);
  [[nodiscard]] static Status comes_after(const Task& task);  // a failed earlier task's error
  std::vector<std::uint64_t> end_one(Task& task, const Status& status, TimeNs now, service::Effects& effects);
  void answer_waiters(Task& task, service::Effects& effects);
  void enter(Task& task, Task::State state, TimeNs now);
  [[nodiscard]] Task* find(std::uint64_t number);
  [[nodiscard]] std::uint64_t begin_transfer(Transfer transfer);
  Limits limits_;
  UserPlugins user_plugins_;
  TaskRoom room_;
  LaneMessages messages_;
  std::map<service::ChannelNumber, Program> programs_;
  std::map<std::uint64_t, std::unique_ptr<Session>> sessions_;
  std::map<std::uint64_t, Task*> tasks_;  // by number
  std::map<std::uint64_t, Transfer> transfers_;
  std::uint64_t next_number_ = 1, next_session_ = 1, next_transfer_ = 1;
  std::set<std::pair<TimeNs, std::uint64_t>> deadlines_;  // with numbers of tasks that no worker has started
  TimeNs look_again_ = never;
  TaskCounters counters_;
};

}  // namespace offpath::task
