// One worker as a process, in the agent: owns its pidfd, its socket and its control page. It knows no queues and
// deadlines; Workers (workers.h) decides, and this object acts.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "plugin/packet_socket.h"

namespace offpath::plugin {

// A result with checked memory.
struct Finished {
  CallNumber call = 0;
  std::int32_t status = 0;
  std::string error;
  Outputs outputs;
};
// A message to send, with checked memory.
struct Sending {
  SendNotice notice;
  Fd memory;  // if it is not enclosed
};
using WorkerEvent = std::variant<Ready, Unusable, LogLine, Finished, Sending, ReceiveNotice, TakenNotice>;

// Privileges to start and end workers of another user. If a plug-in has a user, the agent keeps them permitted but not
// effective.
[[nodiscard]] bool may_change_user() noexcept;

class WorkerProcess {
 public:
  // `program` is offpath-worker. The plug-in's file is checked each time (plugin_file.h). Called on a thread that lives
  // as long as the agent: the kernel kills a worker when the thread that started it ends. `user`: charged for
  // descriptors of the worker.
  [[nodiscard]] static Result<WorkerProcess> start(const PluginOptions& options, const std::string& program,
                                                   std::shared_ptr<ReceivedFds::User> user = nullptr);
  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&&) = delete;
  ~WorkerProcess();  // kills it, and waits for it

  [[nodiscard]] int socket() const noexcept { return socket_.get(); }    // readable: receive()
  [[nodiscard]] int process() const noexcept { return process_.get(); }  // readable: reap()
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  // Error::invalid, too_large and denied: the call is wrong, and the worker has not seen it. Other errors: the worker
  // does not accept it.
  [[nodiscard]] Status send(CallNumber number, const Call& call, TimeNs deadline_ns, WorkerNumber self);
  // Tells the function that this call or an earlier one was cancelled.
  void cancel(CallNumber number) noexcept;
  // Whether the worker has finished the newest call: true once for each. Costs two loads and no system call.
  [[nodiscard]] bool take_finished() noexcept;
  // Answers an operation of this call. An error: the worker does not accept it.
  [[nodiscard]] Status answer(CallNumber call, OperationNumber operation, const OperationAnswer& answer);
  void kill() noexcept;  // with its process group

  // One message; empty if there is none. After any error the worker has to be killed.
  [[nodiscard]] Result<std::optional<WorkerEvent>> receive();
  [[nodiscard]] std::optional<Exit> reap();  // empty: it still runs

 private:
  WorkerProcess() = default;

  Fd socket_, process_;
  pid_t pid_ = 0;
  std::atomic<CallNumber>* control_ = nullptr;               // the agent's page, then the worker's
  CallNumber sent_ = 0;                                      // the call that is not reported as finished
  std::map<std::uint64_t, std::weak_ptr<const void>> kept_;  // memory that it has mapped
  bool reaped_ = false;
  PacketReader reader_;
};

// A worker's message with its descriptors, checked: receive() makes it from a packet.
[[nodiscard]] Result<WorkerEvent> accept_packet(Packet packet);

}  // namespace offpath::plugin
