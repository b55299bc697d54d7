// Tasks of one session (ofp_tasks): the tasks under way, and which completion word belongs to which task. Read
// wire::TaskRun first.
//
// Read this first in src/host/tasks, then task_here.h and messages_here.h for tasks that run without an agent.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "host/connection.h"
#include "wire/messages/task_messages.h"
#include "wire/region.h"

namespace offpath::host {

class TaskSession final : public RangeUser, public std::enable_shared_from_this<TaskSession> {
 public:
  // A posted task. The thread that takes its reply fills it in; the session's lock guards it.
  struct Posted {
    std::uint64_t ticket = 0;
    std::uint32_t line = 0;
    bool tells = false;  // its line will say that its inputs are pulled
    std::vector<Staging::Place> staged{};
    std::vector<HostEnd::RangeName> ranges{};  // that its inputs lie in, until they are pulled
    bool over = false;
    Status outcome{};
    wire::TaskDone done{};
    std::uint64_t asked = 0;     // the request for notification of pulled inputs, sent once; 0: not sent, or answered
    ofp_task* handle = nullptr;  // that next() gives
  };
  using PostedPtr = std::shared_ptr<Posted>;

  [[nodiscard]] static Result<std::shared_ptr<TaskSession>> open(ConnectionPtr connection,
                                                                 const ofp_tasks_options& options);
  void close();

  // With a handle, next() gives it when the task is over, unless it was withdrawn.
  [[nodiscard]] Result<PostedPtr> submit(const ofp_task_request& request, std::span<const std::uint64_t> after,
                                         ofp_task* handle);
  // Error::would_block: not until then; anything else is the outcome.
  [[nodiscard]] Status wait(Posted& task, TimeNs deadline);
  [[nodiscard]] Status wait_pulled(Posted& task, TimeNs deadline);
  // Returns each ended task once. Error::not_found: none is left; would_block: none at the deadline, and the event fd
  // is armed.
  [[nodiscard]] Result<ofp_task*> next(TimeNs deadline);
  [[nodiscard]] Status cancel(Posted& task);
  void withdraw(const PostedPtr& task);  // nobody asks for it any more

  [[nodiscard]] Status leave(HostEnd::RangeName range, TimeNs deadline) override;

  [[nodiscard]] const ConnectionPtr& connection() const noexcept { return connection_; }

 private:
  explicit TaskSession(ConnectionPtr connection) : connection_(std::move(connection)) {}
  [[nodiscard]] Result<PostedPtr> post(const ofp_task_request& request, std::span<const std::uint64_t> after,
                                       ofp_task* handle, std::vector<HostEnd::RangeName>& announced);
  [[nodiscard]] Status compose(const ofp_task_request& request, std::span<const std::uint64_t> after, Posted& task,
                               std::vector<std::byte>& payload);
  [[nodiscard]] Result<wire::BufferRef> name_input(const ofp_task_input& input, std::uint32_t& hint);
  [[nodiscard]] Result<wire::BufferRef> name_output(const ofp_task_output& output, std::uint32_t& hint);
  [[nodiscard]] std::uint64_t line_of(const Posted& task) const noexcept;
  [[nodiscard]] bool says_pulled(const Posted& task);
  [[nodiscard]] Status wait_pulled(Posted& task, TimeNs deadline, TimeNs spin_until);
  [[nodiscard]] PostedPtr pulls_from(HostEnd::RangeName range);
  bool settle(Posted& task);
  void end(Posted& task, Status outcome);
  void sweep();

  ConnectionPtr connection_;
  std::uint64_t number_ = 0;
  wire::RegionId lines_ = 0;
  MutableBytes lines_memory_;
  std::mutex mutex_;
  std::vector<std::uint32_t> free_lines_;
  std::vector<std::uint32_t> hints_;  // where the inputs and outputs of the task before lay
  std::vector<PostedPtr> withdrawn_;
  std::vector<PostedPtr> pulling_;              // those with ranges
  std::map<std::uint64_t, PostedPtr> to_give_;  // by ticket: those with a handle that are not known to be over
  std::deque<PostedPtr> ended_;                 // and those that are, in the order this program has learnt of it
  std::vector<HostEnd::RangeName> announced_;   // for the task that is being composed
  bool closed_ = false;
};

}  // namespace offpath::host
