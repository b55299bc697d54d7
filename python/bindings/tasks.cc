// ofp_tasks_*: the package's tasks.py makes something pleasant of it.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <utility>
#include <vector>

#include "calls.h"

namespace offpath::python {
namespace {

// name, buffer or None, bytes, version, changed_from, changed_at, changed_bytes
using GivenInput =
    std::tuple<std::string, nb::object, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>;
// name, buffer or None, bytes, version
using GivenOutput = std::tuple<std::string, nb::object, std::uint64_t, std::uint64_t>;

class Task {
 public:
  Task(ChannelHandle channel, ofp_task* task, std::vector<Exported> memory)
      : channel_(std::move(channel)), task_(task), memory_(std::move(memory)) {}
  Task(Task&& other) noexcept
      : channel_(std::move(other.channel_)),
        task_(std::exchange(other.task_, nullptr)),
        memory_(std::move(other.memory_)) {}
  Task& operator=(Task&&) = delete;
  ~Task() {
    const nb::gil_scoped_release release;
    ofp_task_free(task_);
  }
  [[nodiscard]] ofp_task* get() const { return task_; }

  [[nodiscard]] std::uintptr_t handle() const { return reinterpret_cast<std::uintptr_t>(task_); }

  // False: not until then.
  [[nodiscard]] bool wait(const Seconds& timeout) const { return waited(timeout, ofp_task_wait); }
  [[nodiscard]] bool wait_pulled(const Seconds& timeout) const { return waited(timeout, ofp_task_wait_pulled); }
  void cancel() const {
    ofp_error error{};
    int code = 0;
    {
      const nb::gil_scoped_release release;
      code = ofp_task_cancel(task_, &error);
    }
    check(code, error);
  }
  [[nodiscard]] nb::dict info() const {
    ofp_task_info info{};
    info.struct_bytes = sizeof info;
    ofp_error error{};
    check(ofp_task_info_get(task_, &info, &error), error);
    nb::dict told;
    told["here"] = info.here != 0;
    told["worker"] = info.worker;
    told["pulled_ns"] = info.pulled_ns;
    told["queued_ns"] = info.queued_ns;
    told["ran_ns"] = info.ran_ns;
    told["pushed_ns"] = info.pushed_ns;
    told["pulled_bytes"] = info.pulled_bytes;
    told["pushed_bytes"] = info.pushed_bytes;
    return told;
  }
  [[nodiscard]] std::uint64_t output_bytes(std::uint32_t index) const {
    std::uint64_t bytes = 0;
    ofp_error error{};
    check(ofp_task_output_bytes(task_, index, &bytes, &error), error);
    return bytes;
  }

 private:
  [[nodiscard]] bool waited(const Seconds& timeout, int (*call)(ofp_task*, std::int64_t, ofp_error*)) const {
    // A task that has timed out returns OFP_TIMEOUT; one that still runs OFP_WOULD_BLOCK.
    return ended_in_time(timeout, OFP_WOULD_BLOCK,
                         [&](std::int64_t wait_ns, ofp_error* error) { return call(task_, wait_ns, error); });
  }

  ChannelHandle channel_;
  ofp_task* task_;
  std::vector<Exported> memory_;  // stays as long as the task may be read from or written to
};

// A request, and the memory it points to.
struct TaskRequest {
  TaskRequest(const std::string& function, const std::vector<GivenInput>& inputs,
              const std::vector<GivenOutput>& outputs, const nb::bytes& arguments, const nb::list& after,
              const Seconds& timeout) {
    for (const auto& [name, buffer, bytes, version, changed_from, changed_at, changed_bytes] : inputs) {
      ofp_task_input& input = given.emplace_back(
          ofp_task_input{name.c_str(), nullptr, bytes, version, changed_from, changed_at, changed_bytes});
      if (buffer.is_none()) continue;
      const Py_buffer& view = memory.emplace_back(exported_bytes(buffer.ptr(), PyBUF_C_CONTIGUOUS)).view();
      input.data = view.buf;
      input.bytes = static_cast<std::uint64_t>(view.len);
    }
    for (const auto& [name, buffer, bytes, version] : outputs) {
      ofp_task_output& output = made.emplace_back(ofp_task_output{name.c_str(), nullptr, bytes, version});
      if (buffer.is_none()) continue;
      const Py_buffer& view = memory.emplace_back(buffer.ptr(), PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE).view();
      output.data = view.buf;
      output.bytes = static_cast<std::uint64_t>(view.len);
    }
    for (const nb::handle task : after) before.push_back(nb::cast<Task&>(task).get());
    composed.struct_bytes = sizeof composed;
    composed.function = function.c_str();
    composed.arguments = arguments.c_str();
    composed.arguments_bytes = arguments.size();
    composed.inputs = given.data();
    composed.outputs = made.data();
    composed.inputs_count = static_cast<std::uint32_t>(given.size());
    composed.outputs_count = static_cast<std::uint32_t>(made.size());
    composed.after = before.data();
    composed.after_count = static_cast<std::uint32_t>(before.size());
    composed.wait_ns = wait_ns_of(timeout);
  }
  TaskRequest(const TaskRequest&) = delete;

  ofp_task_request composed{};
  std::vector<Exported> memory;
  std::vector<ofp_task_input> given;
  std::vector<ofp_task_output> made;
  std::vector<ofp_task*> before;
};

class Tasks {
 public:
  Tasks(nb::handle channel, std::uint32_t lane, std::uint32_t lanes, std::uint32_t tasks_max,
        const std::vector<std::tuple<std::string, std::string>>& plugins, const std::string& team)
      : channel_(channel.is_none() ? nullptr : handle_of(channel)) {
    std::vector<ofp_task_plugin> given;
    for (const auto& [name, path] : plugins) given.push_back({name.c_str(), path.c_str()});
    ofp_tasks_options options{};
    options.struct_bytes = sizeof options;
    options.lane = lane;
    options.lanes = lanes;
    options.tasks_max = tasks_max;
    options.plugins = given.data();
    options.plugins_count = static_cast<std::uint32_t>(given.size());
    options.team = team.c_str();
    ofp_error error{};
    int code = 0;
    {
      const nb::gil_scoped_release release;
      code = ofp_tasks_open(channel_.get(), &options, &tasks_, &error);
    }
    check(code, error);
  }
  Tasks(const Tasks&) = delete;
  Tasks& operator=(const Tasks&) = delete;
  ~Tasks() { close(); }

  [[nodiscard]] Task submit(const std::string& function, const std::vector<GivenInput>& inputs,
                            const std::vector<GivenOutput>& outputs, const nb::bytes& arguments, const nb::list& after,
                            const Seconds& timeout) {
    TaskRequest request(function, inputs, outputs, arguments, after, timeout);
    ofp_task* task = nullptr;
    ofp_error error{};
    check(ofp_task_submit(open(), &request.composed, &task, &error), error);
    return {channel_, task, std::move(request.memory)};
  }
  // The handle of one that is over; 0: none until then.
  [[nodiscard]] std::uintptr_t next(const Seconds& timeout) const {
    ofp_tasks* const tasks = open();
    ofp_task* task = nullptr;
    (void)ended_in_time(timeout, OFP_WOULD_BLOCK, [&](std::int64_t wait_ns, ofp_error* error) {
      return ofp_tasks_next(tasks, wait_ns, &task, error);
    });
    return reinterpret_cast<std::uintptr_t>(task);
  }
  // Whether this program ran it, and for how long it ran.
  [[nodiscard]] std::tuple<bool, std::int64_t> run(const std::string& function, const std::vector<GivenInput>& inputs,
                                                   const std::vector<GivenOutput>& outputs, const nb::bytes& arguments,
                                                   const nb::list& after, const Seconds& timeout) {
    const TaskRequest request(function, inputs, outputs, arguments, after, timeout);
    ofp_task_info info{};
    info.struct_bytes = sizeof info;
    ofp_error error{};
    ofp_tasks* const tasks = open();
    check(call_waiting(error, [&](ofp_error* told) { return ofp_task_run(tasks, &request.composed, &info, told); }),
          error);
    return {info.here != 0, info.ran_ns};
  }
  void close() {
    ofp_tasks* tasks = std::exchange(tasks_, nullptr);
    const nb::gil_scoped_release release;
    ofp_tasks_close(tasks);
  }

 private:
  [[nodiscard]] ofp_tasks* open() const {
    if (tasks_ == nullptr) fail(OFP_CLOSED, "this session of tasks is closed");
    return tasks_;
  }
  ChannelHandle channel_;
  ofp_tasks* tasks_ = nullptr;
};

}  // namespace

void bind_tasks(nb::module_& module) {
  nb::class_<Task>(module, "Task")
      .def_prop_ro("handle", &Task::handle)
      .def("wait", &Task::wait, nb::arg("timeout").none())
      .def("wait_pulled", &Task::wait_pulled, nb::arg("timeout").none())
      .def("cancel", &Task::cancel)
      .def("info", &Task::info)
      .def("output_bytes", &Task::output_bytes, nb::arg("index"));
  nb::class_<Tasks>(module, "Tasks")
      .def(nb::init<nb::handle, std::uint32_t, std::uint32_t, std::uint32_t,
                    const std::vector<std::tuple<std::string, std::string>>&, const std::string&>(),
           nb::arg("channel").none(), nb::arg("lane"), nb::arg("lanes"), nb::arg("tasks_max"), nb::arg("plugins"),
           nb::arg("team"))
      .def("submit", &Tasks::submit, nb::arg("function"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("arguments"),
           nb::arg("after"), nb::arg("timeout").none())
      .def("run", &Tasks::run, nb::arg("function"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("arguments"),
           nb::arg("after"), nb::arg("timeout").none())
      .def("next", &Tasks::next, nb::arg("timeout").none())
      .def("close", &Tasks::close);
}

}  // namespace offpath::python
