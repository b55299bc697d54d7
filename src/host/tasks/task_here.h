// Functions of plug-ins run by this program itself, on the thread that asks: without an agent, or when it has gone.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "host/tasks/messages_here.h"
#include "offpath/offpath.h"
#include "offpath/plugin.h"

namespace offpath::host {

class PluginsHere {
 public:
  // Loaded when they are needed, and then until this process ends: a library's threads may not.
  PluginsHere(const ofp_task_plugin* plugins, std::uint32_t count, bool has_team = false);

  struct Made {
    std::vector<std::uint64_t> output_bytes;  // in the order of the request
    TimeNs ran_ns = 0;
  };
  // Inputs are read, and outputs written, where they lie. Those that stay do so here, for this session.
  [[nodiscard]] Result<Made> run(const ofp_task_request& request, std::uint32_t lane, std::uint32_t lanes);

 private:
  friend class ContextHere;
  struct Kept {
    std::uint64_t version = 0;
    std::vector<std::byte> bytes;
  };
  [[nodiscard]] Result<ofp_function_pointer> find(std::string_view name);
  [[nodiscard]] Result<const Kept*> keep(const ofp_task_input& input);

  std::map<std::string, std::string, std::less<>> paths_;
  std::map<std::string, const ofp_plugin*, std::less<>> loaded_;
  std::map<std::string, Kept, std::less<>> kept_;
  std::unique_ptr<MessagesHere> messages_;
};

// Tasks of a session without an agent: each runs when it, or one behind it, is waited for; in the order they were
// submitted.
class TasksHere {
 public:
  class Task {
   public:
    explicit Task(const ofp_task_request& request, std::vector<std::shared_ptr<Task>> after, TasksHere& session);
    bool over = false;
    Status outcome{};
    PluginsHere::Made made{};
    ofp_task* handle = nullptr;  // that next() gives

   private:
    friend class TasksHere;
    TasksHere& session_;
    ofp_task_request request_;
    std::string function_;
    std::vector<std::byte> arguments_;
    std::vector<std::string> names_;
    std::vector<ofp_task_input> inputs_;
    std::vector<ofp_task_output> outputs_;
    std::vector<std::shared_ptr<Task>> after_;
  };
  using TaskPtr = std::shared_ptr<Task>;

  TasksHere(PluginsHere plugins, std::uint32_t lane, std::uint32_t lanes)
      : plugins_(std::move(plugins)), lane_(lane), lanes_(lanes) {}

  [[nodiscard]] Result<TaskPtr> submit(const ofp_task_request& request, std::vector<TaskPtr> after, ofp_task* handle);
  // Returns each ended task once; runs waiting ones until one has ended. Error::not_found: none is left.
  [[nodiscard]] Result<ofp_task*> next();
  [[nodiscard]] Status wait(Task& task);
  void cancel(Task& task);
  void withdraw(const TaskPtr& task);  // its result is not needed any more
  // At once, for all submitted tasks.
  [[nodiscard]] Result<PluginsHere::Made> run(const ofp_task_request& request);

 private:
  void run_next();
  void end(const TaskPtr& task);

  std::recursive_mutex mutex_;  // a task may come after one of the same session
  PluginsHere plugins_;
  std::uint32_t lane_, lanes_;
  std::deque<TaskPtr> waiting_;
  std::deque<TaskPtr> ended_;  // with a handle that next() has not given
};

}  // namespace offpath::host
