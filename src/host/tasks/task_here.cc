#include "host/tasks/task_here.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <list>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "wire/messages/function_context.h"

namespace offpath::host {

namespace {

Result<const ofp_plugin*> load(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fail(Error::not_found, "{}", dlerror());
  const auto entry = reinterpret_cast<ofp_plugin_entry>(dlsym(library, "offpath_plugin"));
  const ofp_plugin* const plugin = entry != nullptr ? entry() : nullptr;
  if (plugin == nullptr) return fail(Error::invalid, "{} is not a plug-in that can be used here", path);
  if (plugin->version != OFP_PLUGIN_VERSION || plugin->struct_bytes < sizeof(ofp_plugin))
    return fail(Error::version, "{} was built for version {} of offpath/plugin.h, this library has {}", path,
                plugin->version, OFP_PLUGIN_VERSION);
  return plugin;
}

}  // namespace

// The context of a function that the program runs itself: outputs lie in the program's memory.
class ContextHere final : public wire::FunctionContext {
 public:
  ContextHere(PluginsHere& plugins, const ofp_task_request& request, std::uint32_t lane, std::uint32_t lanes)
      : plugins_(plugins), request_(request) {
    std::vector<wire::FunctionOutputs::Room> named;
    std::vector<ofp_room> rooms;
    for (std::uint32_t i = 0; i < request.outputs_count; ++i) {
      rooms.push_back({sizeof(ofp_room), 0, request.outputs[i].name, request.outputs[i].bytes});
      named.push_back({request.outputs[i].name, request.outputs[i].bytes});
    }
    own_.resize(request.outputs_count);
    outputs_ = wire::FunctionOutputs(std::move(named), UINT64_MAX, true);
    show_rooms(std::move(rooms));
    arguments_.resize(request.arguments_bytes / 8 + 1);
    if (request.arguments_bytes != 0) std::memcpy(arguments_.data(), request.arguments, request.arguments_bytes);
    ofp_context& shown = visible();
    shown.function = std::strchr(request.function, '/') + 1;
    shown.arguments = arguments_.data();
    shown.arguments_bytes = request.arguments_bytes;
    shown.deadline_ns = request.wait_ns > 0 ? deadline_after(monotonic_ns(), request.wait_ns) : never;
    shown.lane = lane;
    shown.lanes = lanes;
  }

  Status take_inputs() {
    std::vector<ofp_input> inputs;
    inputs.reserve(request_.inputs_count);
    for (std::uint32_t i = 0; i < request_.inputs_count;) {
      std::uint32_t end = i + 1;
      while (end < request_.inputs_count && std::strcmp(request_.inputs[end].name, request_.inputs[i].name) == 0) ++end;
      OFP_ASSIGN(const ofp_task_input input, joined({request_.inputs + i, end - i}));
      i = end;
      const void* data = input.data;
      if (input.version != 0) {
        OFP_ASSIGN(const PluginsHere::Kept* const kept, plugins_.keep(input));
        data = kept->bytes.data();
      }
      inputs.push_back({sizeof(ofp_input), 0, "", input.name, 0, std::strlen(input.name),
                        data != nullptr ? data : context(), input.bytes});
    }
    show_inputs(std::move(inputs));
    return {};
  }

  Status run(ofp_function_pointer function) {
    const std::int32_t status = call(function);
    if (status == 0) return {};
    const std::lock_guard lock(mutex_);
    return fail(Error::function_failed, "{}: {} (it returned {})", request_.function,
                error().empty() ? "it failed" : error(), status);
  }

  // Copies outputs to where the request wants them, and keeps those that have a version for the session.
  void finish(PluginsHere::Made& made) {
    made.output_bytes.resize(request_.outputs_count);
    for (const wire::FunctionOutputs::Made& each : outputs().made()) {
      const ofp_task_output& output = request_.outputs[*each.room];
      made.output_bytes[*each.room] = each.bytes;
      if (output.data != nullptr && !own_[*each.room].empty()) std::memcpy(output.data, each.data, each.bytes);
      if (output.version == 0) continue;
      const auto* const from = static_cast<const std::byte*>(each.data);
      plugins_.kept_[output.name] = {output.version, {from, from + each.bytes}};
    }
  }

 private:
  // The pieces of one input as one.
  Result<ofp_task_input> joined(std::span<const ofp_task_input> pieces) {
    ofp_task_input whole = pieces.front();
    if (pieces.size() == 1) return whole;
    std::vector<std::byte>& bytes = joined_.emplace_back();
    for (const ofp_task_input& piece : pieces) {
      if (piece.version != whole.version || piece.changed_from != 0)
        return fail(Error::invalid, "input \"{}\" is in pieces: all need the same version, and no changed part",
                    piece.name);
      const auto* const from = static_cast<const std::byte*>(piece.data);
      if (from != nullptr) bytes.insert(bytes.end(), from, from + piece.bytes);
      whole.bytes += &piece != &pieces.front() ? piece.bytes : 0;
    }
    whole.data = bytes.size() == whole.bytes ? bytes.data() : nullptr;
    return whole;
  }

  [[nodiscard]] bool is_input(const void* memory, std::uint64_t bytes) const noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    const std::span<const ofp_task_input> given(request_.inputs, request_.inputs_count);
    return std::ranges::any_of(given, [&](const ofp_task_input& input) {
      const auto data = reinterpret_cast<std::uintptr_t>(input.data);
      return begin < data + input.bytes && data < begin + bytes;
    });
  }

  Result<void*> make_output(std::string_view name, std::uint64_t bytes, std::uint32_t flags) override {
    OFP_ASSIGN(const auto room, outputs_.admit(name, bytes));
    // Memory that is an input as well stays unchanged until the function has returned.
    void* data = request_.outputs[*room].data;
    if (data == nullptr || is_input(data, bytes)) {
      own_[*room].resize(std::max<std::uint64_t>(bytes, 1));
      data = own_[*room].data();
    }
    if ((flags & OFP_DATA_UNSET) == 0) std::memset(data, 0, bytes);
    outputs_.add(name, *room, data, bytes);
    return data;
  }
  void shrunk(std::size_t, std::uint64_t) override {}
  bool is_cancelled() const noexcept override { return false; }
  Status send(std::uint32_t lane, std::uint32_t tag, Bytes message) override {
    return plugins_.messages_->send(visible().lane, visible().lanes, lane, tag, message);
  }
  Status receive(std::uint32_t lane, std::uint32_t tag, std::span<std::byte> into, std::uint64_t& bytes) override {
    return plugins_.messages_->receive(visible().lane, visible().lanes, lane, tag, into, visible().deadline_ns, bytes);
  }
  void log(ofp_log_level level, std::string_view line) override {
    if (level >= OFP_LOG_WARNING)
      std::fprintf(stderr, "offpath: %s: %.*s\n", visible().function,
                   static_cast<int>(std::min<std::size_t>(line.size(), 1000)), line.data());
  }

  PluginsHere& plugins_;
  const ofp_task_request& request_;
  std::vector<std::uint64_t> arguments_;
  std::vector<std::vector<std::byte>> own_;   // outputs that do not lie in the program's memory
  std::list<std::vector<std::byte>> joined_;  // inputs in pieces
};

PluginsHere::PluginsHere(const ofp_task_plugin* plugins, std::uint32_t count, bool has_team)
    : messages_(std::make_unique<MessagesHere>(has_team)) {
  for (std::uint32_t i = 0; i < count; ++i)
    if (plugins[i].name != nullptr && plugins[i].path != nullptr) paths_.emplace(plugins[i].name, plugins[i].path);
}

Result<ofp_function_pointer> PluginsHere::find(std::string_view name) {
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos)
    return fail(Error::invalid, "function \"{}\": expected \"plug-in/function\"", name);
  const std::string_view plugin = name.substr(0, slash), function = name.substr(slash + 1);
  auto at = loaded_.find(plugin);
  if (at == loaded_.end()) {
    const auto path = paths_.find(plugin);
    if (path == paths_.end())
      return fail(Error::not_found,
                  "this session of tasks has no plug-in \"{}\" to be run here (ofp_tasks_options.plugins)", plugin);
    OFP_ASSIGN(const ofp_plugin* const made, load(path->second));
    at = loaded_.emplace(plugin, made).first;
  }
  for (std::uint32_t i = 0; i < at->second->function_count; ++i)
    if (at->second->functions[i].name != nullptr && function == at->second->functions[i].name)
      return at->second->functions[i].function;
  return fail(Error::not_found, "plug-in \"{}\" has no function \"{}\"", plugin, function);
}

// Like an agent: resident inputs are not copied again.
Result<const PluginsHere::Kept*> PluginsHere::keep(const ofp_task_input& input) {
  auto at = kept_.find(input.name);
  if (at != kept_.end() && at->second.version == input.version && at->second.bytes.size() == input.bytes)
    return &at->second;
  if (input.data == nullptr && input.bytes != 0)
    return fail(Error::not_found, "input \"{}\" is not here as version {}, and has no memory", input.name,
                input.version);
  if (at == kept_.end()) at = kept_.emplace(input.name, Kept{}).first;
  const auto* const from = static_cast<const std::byte*>(input.data);
  at->second.version = input.version;
  at->second.bytes.assign(from, from + input.bytes);
  return &at->second;
}

Result<PluginsHere::Made> PluginsHere::run(const ofp_task_request& request, std::uint32_t lane, std::uint32_t lanes) {
  if (request.function == nullptr) return fail(Error::invalid, "function is NULL");
  for (std::uint32_t i = 0; i < request.inputs_count; ++i) {
    if (request.inputs[i].name == nullptr) return fail(Error::invalid, "an input's name is NULL");
    if (request.inputs[i].data == nullptr && request.inputs[i].bytes != 0 && request.inputs[i].version == 0)
      return fail(Error::invalid, "input \"{}\" has neither memory nor a version", request.inputs[i].name);
  }
  for (std::uint32_t i = 0; i < request.outputs_count; ++i)
    if (request.outputs[i].name == nullptr) return fail(Error::invalid, "an output's name is NULL");
  OFP_ASSIGN(const ofp_function_pointer function, find(request.function));
  ContextHere context(*this, request, lane, lanes);
  OFP_TRY(context.take_inputs());
  Made made;
  const TimeNs began = monotonic_ns();
  OFP_TRY(context.run(function));
  made.ran_ns = monotonic_ns() - began;
  context.finish(made);
  return made;
}

// ---- without an agent

TasksHere::Task::Task(const ofp_task_request& request, std::vector<std::shared_ptr<Task>> after, TasksHere& session)
    : session_(session), request_(request), function_(request.function), after_(std::move(after)) {
  const auto* const arguments = static_cast<const std::byte*>(request.arguments);
  arguments_.assign(arguments, arguments + request.arguments_bytes);
  for (std::uint32_t i = 0; i < request.inputs_count; ++i) names_.emplace_back(request.inputs[i].name);
  for (std::uint32_t i = 0; i < request.outputs_count; ++i) names_.emplace_back(request.outputs[i].name);
  inputs_.assign(request.inputs, request.inputs + request.inputs_count);
  outputs_.assign(request.outputs, request.outputs + request.outputs_count);
  for (std::size_t i = 0; i < inputs_.size(); ++i) inputs_[i].name = names_[i].c_str();
  for (std::size_t i = 0; i < outputs_.size(); ++i) outputs_[i].name = names_[inputs_.size() + i].c_str();
  request_.function = function_.c_str();
  request_.arguments = arguments_.data();
  request_.inputs = inputs_.data();
  request_.outputs = outputs_.data();
}

Result<TasksHere::TaskPtr> TasksHere::submit(const ofp_task_request& request, std::vector<TaskPtr> after,
                                             ofp_task* handle) {
  if (request.function == nullptr || std::strchr(request.function, '/') == nullptr)
    return fail(Error::invalid, "function \"{}\": expected \"plug-in/function\"",
                request.function != nullptr ? request.function : "");
  for (std::uint32_t i = 0; i < request.inputs_count; ++i)
    if (request.inputs[i].name == nullptr) return fail(Error::invalid, "an input's name is NULL");
  for (std::uint32_t i = 0; i < request.outputs_count; ++i)
    if (request.outputs[i].name == nullptr) return fail(Error::invalid, "an output's name is NULL");
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::make_shared<Task>(request, std::move(after), *this));
  waiting_.back()->handle = handle;
  return waiting_.back();
}

void TasksHere::run_next() {
  const TaskPtr task = std::move(waiting_.front());
  waiting_.pop_front();
  for (const TaskPtr& before : task->after_) {
    if (const Status ended = before->session_.wait(*before); !ended) {
      task->outcome =
          fail(Error::cancelled, "{} comes after a task that failed: {}", task->function_, ended.error().message);
      return end(task);
    }
  }
  auto made = plugins_.run(task->request_, lane_, lanes_);
  if (made)
    task->made = std::move(*made);
  else
    task->outcome = tl::unexpected(std::move(made).error());
  end(task);
}

void TasksHere::end(const TaskPtr& task) {
  task->over = true;
  if (task->handle != nullptr) ended_.push_back(task);
}

Result<ofp_task*> TasksHere::next() {
  const std::lock_guard lock(mutex_);
  while (ended_.empty() && !waiting_.empty()) run_next();
  if (ended_.empty())
    return fail(Error::not_found, "no task of this session is under way, and all finished ones were returned");
  ofp_task* const handle = ended_.front()->handle;
  ended_.pop_front();
  return handle;
}

Status TasksHere::wait(Task& task) {
  const std::lock_guard lock(mutex_);
  while (!task.over && !waiting_.empty()) run_next();
  return task.outcome;
}

void TasksHere::cancel(Task& task) {
  const std::lock_guard lock(mutex_);
  const auto at = std::ranges::find_if(waiting_, [&](const TaskPtr& each) { return each.get() == &task; });
  if (at == waiting_.end()) return;
  const TaskPtr cancelled = std::move(*at);
  waiting_.erase(at);
  task.outcome = fail(Error::cancelled, "{} was cancelled by its program", task.function_);
  end(cancelled);
}

void TasksHere::withdraw(const TaskPtr& task) {
  const std::lock_guard lock(mutex_);
  task->handle = nullptr;
  cancel(*task);
  std::erase(ended_, task);
}

Result<PluginsHere::Made> TasksHere::run(const ofp_task_request& request) {
  const std::lock_guard lock(mutex_);
  return plugins_.run(request, lane_, lanes_);
}

}  // namespace offpath::host
