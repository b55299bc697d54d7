// Users' functions on the agent: joins the state machine of src/plugin with real processes and the loop. Services call
// functions through it.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "loop/loop.h"
#include "plugin/worker_process.h"
#include "plugin/workers.h"

namespace offpath::agent {

// Path of offpath-worker, which lies beside the running program.
[[nodiscard]] std::string worker_program();

class PluginProcesses final : public loop::Poller {
 public:
  // Called once for each accepted call, on the loop's thread; it may call functions itself. Not called after this
  // object's end.
  using Done = std::function<void(plugin::Outcome outcome, TimeNs now)>;

  // Belongs to the loop's thread, which has to outlive every worker: the kernel kills workers when that thread ends.
  // Add it to the loop's pollers for its deadlines; it watches its descriptors itself.
  PluginProcesses(loop::Loop& loop, std::vector<plugin::PluginOptions> plugins, std::string program = worker_program());
  ~PluginProcesses() override;  // kills all workers
  PluginProcesses(const PluginProcesses&) = delete;
  PluginProcesses& operator=(const PluginProcesses&) = delete;

  // Messages between lanes are served elsewhere. Each operation of a call is answered once, unless its call has ended.
  struct Messages {
    std::function<void(plugin::Operation operation, TimeNs now)> ask;
    std::function<void(plugin::CallNumber call, plugin::OperationNumber operation, TimeNs now)> taken;
    std::function<void(plugin::CallNumber call, TimeNs now)> ended;
  };
  void serve_messages(Messages messages) { messages_ = std::move(messages); }
  // Answers an operation. Does nothing if its worker or its call has ended.
  void answer(plugin::WorkerNumber worker, plugin::CallNumber call, plugin::OperationNumber operation,
              const plugin::OperationAnswer& answer, TimeNs now);

  void start(TimeNs now);  // starts a worker of each plug-in, so that the log shows its errors at once

  // Errors of plugin::Workers::call are returned at once, and `done` is not called. Otherwise `done` is called later,
  // never from within call(). The inputs' memory has to stay until then (plugin::Input::owner).
  [[nodiscard]] Result<plugin::CallNumber> call(plugin::Call call, TimeNs now, Done done);
  bool cancel(plugin::CallNumber number,
              TimeNs now);  // `done` is called with Error::cancelled; false: it was called already

  [[nodiscard]] std::vector<plugin::PluginStatus> status() const { return workers_.status(); }
  [[nodiscard]] std::uint64_t changes() const noexcept { return workers_.changes(); }

  bool poll(TimeNs now) override;
  bool fall_asleep(TimeNs) override { return effects_.empty(); }
  [[nodiscard]] TimeNs next_deadline() const override { return workers_.next_deadline(); }

 private:
  void carry_out(TimeNs now);
  void carry_out(plugin::StartEffect& effect, TimeNs now);
  void carry_out(plugin::SendEffect& effect, TimeNs now);
  void carry_out(plugin::CancelEffect& effect, TimeNs now);
  void carry_out(plugin::KillEffect& effect, TimeNs now);
  void carry_out(plugin::ReplyEffect& effect, TimeNs now);
  void carry_out(plugin::AskEffect& effect, TimeNs now);
  void carry_out(plugin::TakenEffect& effect, TimeNs now);
  void carry_out(plugin::AnswerEffect& effect, TimeNs now);
  void on_readable(plugin::WorkerNumber number, TimeNs now);
  void on_ended(plugin::WorkerNumber number, TimeNs now);
  [[nodiscard]] Status watch(plugin::WorkerNumber number, const plugin::WorkerProcess& process);
  void receive(plugin::WorkerNumber number, unsigned messages_max, TimeNs now);

  loop::Loop& loop_;
  std::string program_;
  std::shared_ptr<ReceivedFds> received_ = std::make_shared<ReceivedFds>();  // bounded by the number of workers
  plugin::Workers workers_;
  std::unordered_map<plugin::WorkerNumber, plugin::WorkerProcess> processes_;
  std::unordered_map<plugin::CallNumber, Done> calls_;
  plugin::Effects effects_;
  Messages messages_;
  std::set<plugin::CallNumber> asking_;  // calls with operations
};

}  // namespace offpath::agent
