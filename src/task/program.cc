#include "task/program.h"

#include <utility>

namespace offpath::task {

Status Program::may_open(std::size_t sessions_max) const {
  if (sessions_ < sessions_max) return {};
  return fail(Error::too_large, "this program has {} sessions of tasks, which is the limit", sessions_);
}

Status Program::may_add(std::uint64_t ticket, std::size_t tasks_max) const {
  if (tasks_.size() >= tasks_max)
    return fail(Error::would_block, "{} tasks of this program are under way, which is the limit", tasks_.size());
  if (tasks_.contains(ticket))
    return fail(Error::protocol, "a task of this program with ticket {} is under way", ticket);
  return {};
}

void Program::add(Task& task) {
  tasks_.emplace(task.ticket, &task);
  for (const std::uint64_t ticket : task.after) {
    if (const auto failed = failed_.find(ticket); failed != failed_.end()) {
      task.because = failed->second;
      return;
    }
    Task* const before = find(ticket);
    if (before == nullptr || before == &task) continue;
    before->before.push_back(task.number);
    ++task.waits_for;
  }
}

std::vector<std::uint64_t> Program::end(Task& task, const Status& status) {
  tasks_.erase(task.ticket);
  if (!status) {
    failed_.emplace(task.ticket, task.because.value_or(Task::Reason{task.ticket, status.error().message}));
    if (failed_.size() > failed_max) failed_.erase(failed_.begin());
  }
  return std::exchange(task.before, {});
}

Task* Program::find(std::uint64_t ticket) const {
  const auto at = tasks_.find(ticket);
  return at != tasks_.end() ? at->second : nullptr;
}

}  // namespace offpath::task
