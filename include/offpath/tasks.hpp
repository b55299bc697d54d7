// Functions of plug-ins over this program's memory, run by the agent.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef OFFPATH_TASKS_HPP
#define OFFPATH_TASKS_HPP

#include <offpath/channel.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace offpath {

// An input of a task: bytes that may not change until it is pulled. With a version it stays on the agent (offpath.h).
// Inputs that follow each other under one name are pieces of one.
struct TaskInput {
  std::string name;
  std::span<const std::byte> data;
  std::uint64_t version = 0, changed_from = 0, changed_at = 0, changed_bytes = 0;
  std::uint64_t bytes = 0;  // where `data` is empty and the agent has the version
};
// An output: bytes of an offpath::Segment, or a number of bytes that stay on the agent.
struct TaskOutput {
  std::string name;
  std::span<std::byte> data;
  std::uint64_t version = 0;
  std::uint64_t bytes = 0;  // where `data` is empty
};
template <class T>
[[nodiscard]] std::span<const std::byte> bytes_of(const T* values, std::size_t count) noexcept {
  return std::as_bytes(std::span(values, count));
}
template <class T>
[[nodiscard]] std::span<std::byte> writable_bytes_of(T* values, std::size_t count) noexcept {
  return std::as_writable_bytes(std::span(values, count));
}

// A task that was submitted. Destroyed before it is over, it is cancelled.
class Task {
 public:
  // False: it continues. Throws its failure.
  bool wait(Wait wait = forever) { return is_over(ofp_task_wait, wait); }
  bool wait_pulled(Wait wait = forever) {
    return is_over(ofp_task_wait_pulled, wait);
  }  // its inputs are this program's again
  void cancel() {
    detail::call([&](ofp_error* error) { return ofp_task_cancel(task_.get(), error); });
  }
  [[nodiscard]] ofp_task_info info() const {
    ofp_task_info info{};
    info.struct_bytes = sizeof info;
    detail::call([&](ofp_error* error) { return ofp_task_info_get(task_.get(), &info, error); });
    return info;
  }
  [[nodiscard]] std::uint64_t output_bytes(std::uint32_t index) const {
    std::uint64_t bytes = 0;
    detail::call([&](ofp_error* error) { return ofp_task_output_bytes(task_.get(), index, &bytes, error); });
    return bytes;
  }
  [[nodiscard]] ofp_task* get() const noexcept { return task_.get(); }

 private:
  friend class Tasks;
  Task(detail::SharedChannel channel, ofp_task* task) : channel_(std::move(channel)), task_(task) {}
  bool is_over(int (*call)(ofp_task*, std::int64_t, ofp_error*), Wait wait) {
    ofp_error error{};
    const int code = call(task_.get(), wait.count(), &error);
    if (code != OFP_OK && code != OFP_WOULD_BLOCK) throw Error(error);
    return code == OFP_OK;
  }
  detail::SharedChannel channel_;
  detail::Owned<ofp_task> task_;
};

struct TaskRequest {
  std::string function;  // "plug-in/function"
  std::vector<TaskInput> inputs{};
  std::vector<TaskOutput> outputs{};
  std::span<const std::byte> arguments{};
  std::vector<const Task*> after{};
  Wait wait{0};  // for all of it; 0: the plug-in's time
};

struct TasksOptions {
  std::uint32_t lane = 0, lanes = 0;  // lanes 0: any order, any worker
  std::uint32_t tasks_max = 0;
  std::vector<std::pair<std::string, std::string>>
      plugins{};       // name and path: whose functions this program can run itself
  std::string team{};  // lanes of one team send each other messages (plugin.h); another name for each run
};

// A session of tasks (offpath.h).
class Tasks {
 public:
  explicit Tasks(const Channel& channel, const TasksOptions& options = {}) : channel_(channel.channel_) {
    open(options);
  }
  // Without an agent: this program runs the functions itself, when it waits.
  explicit Tasks(const TasksOptions& options) { open(options); }

  [[nodiscard]] Task submit(const TaskRequest& request) {
    ofp_task* task = nullptr;
    composed(request, [&](const ofp_task_request& c) {
      detail::call([&](ofp_error* error) { return ofp_task_submit(tasks_.get(), &c, &task, error); });
    });
    return Task(channel_, task);
  }
  // Task::get() of the next task that is over, successful or not, each once. nullptr: none by then, or none is left.
  [[nodiscard]] ofp_task* next(Wait wait = forever) {
    ofp_task* task = nullptr;
    ofp_error error{};
    const int code = ofp_tasks_next(tasks_.get(), wait.count(), &task, &error);
    if (code != OFP_OK && code != OFP_WOULD_BLOCK && code != OFP_NOT_FOUND) throw Error(error);
    return task;
  }
  // Submits and waits; if the agent dies, this program runs the function (TasksOptions::plugins).
  ofp_task_info run(const TaskRequest& request) {
    ofp_task_info info{};
    info.struct_bytes = sizeof info;
    composed(request, [&](const ofp_task_request& c) {
      detail::call([&](ofp_error* error) { return ofp_task_run(tasks_.get(), &c, &info, error); });
    });
    return info;
  }
  [[nodiscard]] ofp_tasks* get() const noexcept { return tasks_.get(); }

 private:
  void open(const TasksOptions& options) {
    std::vector<ofp_task_plugin> plugins;
    for (const auto& [name, path] : options.plugins) plugins.push_back({name.c_str(), path.c_str()});
    ofp_tasks_options c{};
    c.struct_bytes = sizeof c;
    c.lane = options.lane;
    c.lanes = options.lanes;
    c.tasks_max = options.tasks_max;
    c.plugins = plugins.data();
    c.plugins_count = static_cast<std::uint32_t>(plugins.size());
    c.team = options.team.c_str();
    ofp_tasks* tasks = nullptr;
    detail::call([&](ofp_error* error) { return ofp_tasks_open(channel_.get(), &c, &tasks, error); });
    tasks_.reset(tasks);
  }
  template <class Use>
  static void composed(const TaskRequest& request, Use use) {
    std::vector<ofp_task_input> inputs;
    for (const TaskInput& each : request.inputs)
      inputs.push_back({each.name.c_str(), each.data.data(), each.data.empty() ? each.bytes : each.data.size(),
                        each.version, each.changed_from, each.changed_at, each.changed_bytes});
    std::vector<ofp_task_output> outputs;
    for (const TaskOutput& each : request.outputs)
      outputs.push_back(
          {each.name.c_str(), each.data.data(), each.data.empty() ? each.bytes : each.data.size(), each.version});
    std::vector<ofp_task*> after;
    for (const Task* each : request.after) after.push_back(each->get());
    ofp_task_request c{};
    c.struct_bytes = sizeof c;
    c.function = request.function.c_str();
    c.arguments = request.arguments.data();
    c.arguments_bytes = request.arguments.size();
    c.inputs = inputs.data();
    c.outputs = outputs.data();
    c.inputs_count = static_cast<std::uint32_t>(inputs.size());
    c.outputs_count = static_cast<std::uint32_t>(outputs.size());
    c.after = after.data();
    c.after_count = static_cast<std::uint32_t>(after.size());
    c.wait_ns = request.wait.count();
    use(c);
  }

  detail::SharedChannel channel_;
  detail::Owned<ofp_tasks> tasks_;
};

}  // namespace offpath

#endif  // OFFPATH_TASKS_HPP
