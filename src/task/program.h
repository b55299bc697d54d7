// One program's sessions and tasks on the agent: the number of sessions, tasks by ticket, and failed tasks. A task may
// depend on earlier ones: it starts when these have succeeded, and fails when one of them has failed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "task/session.h"

namespace offpath::task {

class Program {
 public:
  static constexpr std::size_t failed_max = 4096;  // ended tasks that are remembered for their dependents

  Program(uid_t user, std::optional<gid_t> group) : user_(user), group_(group) {}
  [[nodiscard]] uid_t user() const noexcept { return user_; }
  [[nodiscard]] std::optional<gid_t> group() const noexcept { return group_; }

  [[nodiscard]] Status may_open(std::size_t sessions_max) const;
  void open() noexcept { ++sessions_; }
  void close() noexcept { --sessions_; }

  // Fails if `tasks_max` tasks are under way, or one with this ticket.
  [[nodiscard]] Status may_add(std::uint64_t ticket, std::size_t tasks_max) const;
  // Adds a task with its dependencies; the task lives until after its end(). A failed dependency becomes the task's
  // reason to fail (Task::because). Tasks that have succeeded, or that are unknown, do not count as dependencies.
  void add(Task& task);
  // Returns the numbers of the tasks that depend on this one. The caller lowers their `waits_for`.
  [[nodiscard]] std::vector<std::uint64_t> end(Task& task, const Status& status);

  [[nodiscard]] Task* find(std::uint64_t ticket) const;
  [[nodiscard]] const std::map<std::uint64_t, Task*>& tasks() const noexcept { return tasks_; }  // by ticket

 private:
  uid_t user_;
  std::optional<gid_t> group_;
  std::size_t sessions_ = 0;
  std::map<std::uint64_t, Task*> tasks_;
  std::map<std::uint64_t, Task::Reason> failed_;  // by ticket
};

}  // namespace offpath::task
