// Memory for tasks. A session's pieces are used again. If there is no room for a new one, unused pieces of all sessions
// are released, and the task waits. Among one program's tasks the oldest gets room first.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "task/session.h"

namespace offpath::task {

class TaskRoom {
 public:
  // `room` returns whether that much memory may be taken.
  TaskRoom(std::shared_ptr<service::BufferCache> cache, std::function<bool(std::uint64_t)> room)
      : cache_(std::move(cache)), room_(std::move(room)) {}
  // The limit of one task; a task that needs more fails.
  void set_memory_max(std::function<std::uint64_t()> bytes) { memory_max_ = std::move(bytes); }

  // Takes all memory that a task of this user needs for outputs and for inputs that are not on the agent, or none:
  // then it returns false, and the task may wait().
  [[nodiscard]] Result<bool> take(Task& task, uid_t user, std::vector<ResidentMemory::Found>& found);
  void wait(const Task& task) { waiting_[task.session->channel].insert(task.number); }
  void stop_waiting(const Task& task);
  [[nodiscard]] bool is_waiting(const Task& task) const;
  [[nodiscard]] std::vector<std::uint64_t> waiting() const;  // numbers of tasks
  [[nodiscard]] bool waits() const noexcept { return !waiting_.empty(); }
  [[nodiscard]] std::uint64_t oldest() const noexcept;  // the number of the task that has waited longest, if any waits

  void close_session(std::uint64_t session) { pieces_.erase(session); }
  void close_channel(service::ChannelNumber channel) { waiting_.erase(channel); }

  // Whether memory was freed since the waiting tasks last looked.
  void note_freed() noexcept { freed_ = true; }
  [[nodiscard]] bool is_freed() const noexcept { return freed_; }
  [[nodiscard]] bool take_freed() noexcept { return std::exchange(freed_, false); }

  // A number for a piece of memory that a function made, different for each piece.
  [[nodiscard]] std::uint64_t next_number() noexcept { return next_number_++; }
  [[nodiscard]] std::uint64_t target_bytes() const noexcept { return target_bytes_; }  // of outputs, used or not

 private:
  // All pieces of a session, used or not. A task shares the ownership of those that it uses.
  struct Pieces {
    std::vector<MemoryPtr> memory;
    std::vector<TargetPtr> targets;
  };
  [[nodiscard]] Result<bool> try_all(Task& task, uid_t user, std::vector<ResidentMemory::Found>& found);
  [[nodiscard]] bool has_room(const Task& task, std::uint64_t bytes) const;
  [[nodiscard]] Result<MemoryPtr> take_memory(const Task& task, uid_t user, std::uint64_t bytes);
  [[nodiscard]] Result<TargetPtr> take_target(const Task& task, std::uint64_t bytes);
  void drop_spares();

  std::shared_ptr<service::BufferCache> cache_;
  std::function<bool(std::uint64_t)> room_;
  std::function<std::uint64_t()> memory_max_;
  std::map<std::uint64_t, Pieces> pieces_;                             // by session
  std::map<service::ChannelNumber, std::set<std::uint64_t>> waiting_;  // numbers of tasks; no set is empty
  std::uint64_t next_number_ = 1, target_bytes_ = 0;
  bool freed_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for callbacks: whether this object lives
};

}  // namespace offpath::task
