// The calls of offpath.h about tasks.
#include <algorithm>
#include <cstring>

#include "host/tasks.h"

using namespace offpath;
using namespace offpath::host;

struct ofp_tasks {
  std::shared_ptr<TaskSession> session;
};

struct ofp_task {
  std::shared_ptr<TaskSession> session;
  TaskSession::PostedPtr posted;
};

namespace {

TimeNs deadline_of(const ofp_task& task, std::int64_t wait_ns) { return wait_ns == 0 ? 0 : task.session->connection()->deadline(wait_ns); }

}  // namespace

extern "C" {

int ofp_tasks_open(ofp_channel* channel, const ofp_tasks_options* options, ofp_tasks** tasks, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(required(tasks, "tasks"));
    *tasks = nullptr;
    ofp_tasks_options given{};
    if (options != nullptr) {
      OFP_TRY(check_struct_bytes(options->struct_bytes, sizeof given, "ofp_tasks_options"));
      std::memcpy(&given, options, std::min<std::size_t>(options->struct_bytes, sizeof given));
    }
    OFP_TRY(channel->connection->here());
    if (given.lanes != 0 && given.lane >= given.lanes) return fail(Error::invalid, "lane {} of {}", given.lane, given.lanes);
    OFP_ASSIGN(auto session, TaskSession::open(channel->connection, given));
    *tasks = new ofp_tasks{std::move(session)};
    return {};
  });
}

void ofp_tasks_close(ofp_tasks* tasks) {
  const std::unique_ptr<ofp_tasks> owned(tasks);
  if (tasks != nullptr && tasks->session->connection()->here()) tasks->session->close();
}

int ofp_task_submit(ofp_tasks* tasks, const ofp_task_request* request, ofp_task** task, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(tasks, "tasks"));
    OFP_TRY(required(request, "request"));
    OFP_TRY(required(task, "task"));
    *task = nullptr;
    OFP_TRY(check_struct_bytes(request->struct_bytes, sizeof *request, "ofp_task_request"));
    ofp_task_request given{};
    std::memcpy(&given, request, std::min<std::size_t>(request->struct_bytes, sizeof given));
    if (given.inputs_count != 0) OFP_TRY(required(given.inputs, "inputs"));
    if (given.outputs_count != 0) OFP_TRY(required(given.outputs, "outputs"));
    if (given.after_count != 0) OFP_TRY(required(given.after, "after"));
    if (given.arguments_bytes != 0) OFP_TRY(required(given.arguments, "arguments"));
    OFP_TRY(tasks->session->connection()->here());
    std::vector<std::uint64_t> after;
    for (std::uint32_t i = 0; i < given.after_count; ++i) {
      OFP_TRY(required(given.after[i], "a task of `after`"));
      if (given.after[i]->session->connection() != tasks->session->connection()) return fail(Error::invalid, "after[{}] is a task of another channel", i);
      after.push_back(given.after[i]->posted->ticket);
    }
    OFP_ASSIGN(auto posted, tasks->session->submit(given, after));
    *task = new ofp_task{tasks->session, std::move(posted)};
    return {};
  });
}

int ofp_task_wait(ofp_task* task, int64_t wait_ns, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(task, "task"));
    OFP_TRY(task->session->connection()->here());
    return task->session->wait(*task->posted, deadline_of(*task, wait_ns));
  });
}

int ofp_task_wait_pulled(ofp_task* task, int64_t wait_ns, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(task, "task"));
    OFP_TRY(task->session->connection()->here());
    return task->session->wait_pulled(*task->posted, deadline_of(*task, wait_ns));
  });
}

int ofp_task_cancel(ofp_task* task, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(task, "task"));
    OFP_TRY(task->session->connection()->here());
    return task->session->cancel(*task->posted);
  });
}

void ofp_task_free(ofp_task* task) {
  const std::unique_ptr<ofp_task> owned(task);
  if (task != nullptr) task->session->withdraw(task->posted);
}

int ofp_task_info_get(ofp_task* task, ofp_task_info* info, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(task, "task"));
    OFP_TRY(required(info, "info"));
    OFP_TRY(check_struct_bytes(info->struct_bytes, sizeof *info, "ofp_task_info"));
    OFP_TRY(task->session->wait(*task->posted, 0));
    const wire::TaskDone& done = task->posted->done;
    ofp_task_info filled{};
    filled.struct_bytes = info->struct_bytes;
    filled.worker = done.worker;
    filled.pulled_ns = done.pulled_ns;
    filled.queued_ns = done.queued_ns;
    filled.ran_ns = done.ran_ns;
    filled.pushed_ns = done.pushed_ns;
    filled.pulled_bytes = done.pulled_bytes;
    for (const std::uint64_t bytes : done.output_bytes) filled.pushed_bytes += bytes;
    std::memcpy(info, &filled, std::min<std::size_t>(info->struct_bytes, sizeof filled));
    return {};
  });
}

int ofp_task_output_bytes(ofp_task* task, uint32_t index, uint64_t* bytes, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(task, "task"));
    OFP_TRY(required(bytes, "bytes"));
    OFP_TRY(task->session->wait(*task->posted, 0));
    const auto& all = task->posted->done.output_bytes;
    if (index >= all.size()) return fail(Error::not_found, "the task has {} outputs, not {}", all.size(), index + 1);
    *bytes = all[index];
    return {};
  });
}

}  // extern "C"
