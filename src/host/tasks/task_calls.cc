// The calls of offpath.h about tasks.
#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <string_view>

#include "host/tasks/task_here.h"
#include "host/tasks/tasks.h"
#include "wire/limits.h"
#include "wire/messages/task_messages.h"

using namespace offpath;
using namespace offpath::host;

// With an agent or without; `here` can run functions in this program either way.
struct ofp_tasks {
  std::shared_ptr<TaskSession> session;
  std::shared_ptr<TasksHere> here;
};

struct ofp_task {
  std::shared_ptr<TaskSession> session;
  TaskSession::PostedPtr posted;
  std::shared_ptr<TasksHere> here;  // instead
  TasksHere::TaskPtr waiting;

  [[nodiscard]] Status usable() const { return session ? session->connection()->here() : Status{}; }
  [[nodiscard]] Status wait(TimeNs wait_ns) const {
    if (!session) return here->wait(*waiting);
    return session->wait(*posted, wait_ns == 0 ? 0 : session->connection()->deadline(wait_ns));
  }
  [[nodiscard]] const std::vector<std::uint64_t>& output_bytes() const {
    return session ? posted->done.output_bytes : waiting->made.output_bytes;
  }
};

namespace {

// Names that are NULL are refused where they are used.
Status check_names(std::span<const ofp_task_input> inputs) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const char* const name = inputs[i].name;
    if (name == nullptr) continue;
    const char* const before = i > 0 ? inputs[i - 1].name : nullptr;
    if (before != nullptr && std::string_view(before) == name) continue;  // a piece
    if (!names.insert(name).second)
      return fail(Error::exists, "two inputs are called \"{}\": the pieces of one input have to follow each other",
                  brief(name));
  }
  if (names.size() > wire::task_inputs_max)
    return fail(Error::too_large, "{} inputs, at most {}", names.size(), wire::task_inputs_max);
  return {};
}

Result<ofp_task_request> checked(const ofp_task_request* request) {
  OFP_TRY(required(request, "request"));
  OFP_TRY(check_struct_bytes(request->struct_bytes, sizeof *request, "ofp_task_request"));
  ofp_task_request given{};
  std::memcpy(&given, request, std::min<std::size_t>(request->struct_bytes, sizeof given));
  // Before anything of them is read.
  if (given.inputs_count > wire::task_pieces_max)
    return fail(Error::too_large, "inputs in {} pieces, at most {}", given.inputs_count, wire::task_pieces_max);
  if (given.outputs_count > wire::task_outputs_max)
    return fail(Error::too_large, "{} outputs, at most {}", given.outputs_count, wire::task_outputs_max);
  if (given.after_count > wire::task_after_max)
    return fail(Error::too_large, "after: {} tasks, at most {}", given.after_count, wire::task_after_max);
  if (given.inputs_count != 0) OFP_TRY(required(given.inputs, "inputs"));
  OFP_TRY(check_names({given.inputs, given.inputs_count}));
  if (given.outputs_count != 0) OFP_TRY(required(given.outputs, "outputs"));
  if (given.after_count != 0) OFP_TRY(required(given.after, "after"));
  if (given.arguments_bytes != 0) OFP_TRY(required(given.arguments, "arguments"));
  for (std::uint32_t i = 0; i < given.after_count; ++i) OFP_TRY(required(given.after[i], "a task of `after`"));
  return given;
}

// `given`: by ofp_tasks_next.
Result<std::unique_ptr<ofp_task>> submit(ofp_tasks& tasks, const ofp_task_request& request, bool given) {
  if (tasks.session) OFP_TRY(tasks.session->connection()->here());
  std::vector<std::uint64_t> after;
  std::vector<TasksHere::TaskPtr> after_here;
  for (std::uint32_t i = 0; i < request.after_count; ++i) {
    const ofp_task& before = *request.after[i];
    if (!before.session != !tasks.session ||
        (tasks.session && before.session->connection() != tasks.session->connection()))
      return fail(Error::invalid, "after[{}] is a task of another channel", i);
    if (before.session)
      after.push_back(before.posted->ticket);
    else
      after_here.push_back(before.waiting);
  }
  auto task = std::make_unique<ofp_task>();
  task->session = tasks.session;
  task->here = tasks.here;
  if (tasks.session) {
    OFP_ASSIGN(task->posted, tasks.session->submit(request, after, given ? task.get() : nullptr));
  } else {
    OFP_ASSIGN(task->waiting, tasks.here->submit(request, std::move(after_here), given ? task.get() : nullptr));
  }
  return task;
}

ofp_task_info info_of(const wire::TaskDone& done) {
  ofp_task_info info{};
  info.worker = done.worker;
  info.pulled_ns = done.pulled_ns;
  info.queued_ns = done.queued_ns;
  info.ran_ns = done.ran_ns;
  info.pushed_ns = done.pushed_ns;
  info.pulled_bytes = done.pulled_bytes;
  for (const std::uint64_t bytes : done.output_bytes) info.pushed_bytes += bytes;
  return info;
}

ofp_task_info info_of(const PluginsHere::Made& made) {
  ofp_task_info info{};
  info.here = 1;
  info.ran_ns = made.ran_ns;
  return info;
}

void give(const ofp_task_info& filled, ofp_task_info* info) {
  const std::uint32_t bytes = info->struct_bytes;
  std::memcpy(info, &filled, std::min<std::size_t>(bytes, sizeof filled));
  info->struct_bytes = bytes;
}

}  // namespace

extern "C" {

int ofp_tasks_open(ofp_channel* channel, const ofp_tasks_options* options, ofp_tasks** tasks, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(tasks, "tasks"));
    *tasks = nullptr;
    ofp_tasks_options given{};
    if (options != nullptr) {
      OFP_TRY(check_struct_bytes(options->struct_bytes, sizeof given, "ofp_tasks_options"));
      std::memcpy(&given, options, std::min<std::size_t>(options->struct_bytes, sizeof given));
    }
    if (given.plugins_count != 0) OFP_TRY(required(given.plugins, "plugins"));
    if (given.lanes != 0 && given.lane >= given.lanes)
      return fail(Error::invalid, "lane {} of {}", given.lane, given.lanes);
    const std::string_view team = given.team != nullptr ? given.team : "";
    if (!team.empty() && given.lanes == 0)
      return fail(Error::invalid, "team \"{}\" without a lane: set lane and lanes", brief(team));
    if (team.size() > wire::name_bytes_max)
      return fail(Error::too_large, "a team's name has {} bytes, at most {}", team.size(), wire::name_bytes_max);
    auto made = std::make_unique<ofp_tasks>();
    made->here = std::make_shared<TasksHere>(PluginsHere(given.plugins, given.plugins_count, !team.empty()), given.lane,
                                             given.lanes);
    if (channel != nullptr) {
      OFP_TRY(channel->connection->here());
      OFP_ASSIGN(made->session, TaskSession::open(channel->connection, given));
    }
    *tasks = made.release();
    return {};
  });
}

void ofp_tasks_close(ofp_tasks* tasks) {
  const std::unique_ptr<ofp_tasks> owned(tasks);
  if (tasks != nullptr && tasks->session && tasks->session->connection()->here()) tasks->session->close();
}

int ofp_task_submit(ofp_tasks* tasks, const ofp_task_request* request, ofp_task** task, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(tasks, "tasks"));
    OFP_TRY(required(task, "task"));
    *task = nullptr;
    OFP_ASSIGN(const ofp_task_request given, checked(request));
    OFP_ASSIGN(auto submitted, submit(*tasks, given, true));
    *task = submitted.release();
    return {};
  });
}

int ofp_task_run(ofp_tasks* tasks, const ofp_task_request* request, ofp_task_info* info, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(tasks, "tasks"));
    if (info != nullptr) OFP_TRY(check_struct_bytes(info->struct_bytes, sizeof *info, "ofp_task_info"));
    OFP_ASSIGN(const ofp_task_request given, checked(request));
    Status ended;
    auto task = submit(*tasks, given, false);
    if (task) {
      ended = (*task)->wait(OFP_FOREVER);
      if (ended && info != nullptr)
        give((*task)->session ? info_of((*task)->posted->done) : info_of((*task)->waiting->made), info);
    } else {
      ended = tl::unexpected(task.error());
    }
    if (ended || ended.error().code != Error::peer_lost || !tasks->session) return ended;
    auto made = tasks->here->run(given);
    if (!made)
      return fail(made.error().code == Error::not_found ? Error::peer_lost : made.error().code, "{}; {}",
                  ended.error().message, made.error().message);
    if (info != nullptr) give(info_of(*made), info);
    return {};
  });
}

int ofp_task_wait(ofp_task* task, int64_t wait_ns, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(task, "task"));
    OFP_TRY(task->usable());
    return task->wait(wait_ns);
  });
}

int ofp_tasks_next(ofp_tasks* tasks, int64_t wait_ns, ofp_task** task, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(tasks, "tasks"));
    OFP_TRY(required(task, "task"));
    *task = nullptr;
    if (!tasks->session) {
      OFP_ASSIGN(*task, tasks->here->next());
      return {};
    }
    const Connection& connection = *tasks->session->connection();
    OFP_TRY(connection.here());
    OFP_ASSIGN(*task, tasks->session->next(wait_ns == 0 ? 0 : connection.deadline(wait_ns)));
    return {};
  });
}

int ofp_task_wait_pulled(ofp_task* task, int64_t wait_ns, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(task, "task"));
    OFP_TRY(task->usable());
    if (!task->session) return task->wait(wait_ns);
    return task->session->wait_pulled(*task->posted, wait_ns == 0 ? 0 : task->session->connection()->deadline(wait_ns));
  });
}

int ofp_task_cancel(ofp_task* task, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(task, "task"));
    OFP_TRY(task->usable());
    if (task->session) return task->session->cancel(*task->posted);
    task->here->cancel(*task->waiting);
    return {};
  });
}

void ofp_task_free(ofp_task* task) {
  const std::unique_ptr<ofp_task> owned(task);
  if (task == nullptr) return;
  if (task->session)
    task->session->withdraw(task->posted);
  else
    task->here->withdraw(task->waiting);
}

int ofp_task_info_get(ofp_task* task, ofp_task_info* info, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(task, "task"));
    OFP_TRY(required(info, "info"));
    OFP_TRY(check_struct_bytes(info->struct_bytes, sizeof *info, "ofp_task_info"));
    OFP_TRY(task->usable());
    OFP_TRY(task->wait(0));
    give(task->session ? info_of(task->posted->done) : info_of(task->waiting->made), info);
    return {};
  });
}

int ofp_task_output_bytes(ofp_task* task, uint32_t index, uint64_t* bytes, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(task, "task"));
    OFP_TRY(required(bytes, "bytes"));
    OFP_TRY(task->usable());
    OFP_TRY(task->wait(0));
    const auto& all = task->output_bytes();
    if (index >= all.size()) return fail(Error::not_found, "the task has {} outputs, not {}", all.size(), index + 1);
    *bytes = all[index];
    return {};
  });
}

}  // extern "C"
