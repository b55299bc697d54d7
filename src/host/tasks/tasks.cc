#include "host/tasks/tasks.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "channel/interruption.h"
#include "wire/limits.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"

namespace offpath::host {

using wire::BufferRef;
using wire::EntryKind;

namespace {

constexpr TimeNs agent_answers_ns = 5 * second_ns;
constexpr TimeNs spin_ns = 50 * microsecond_ns;  // for a word that an agent beside is about to write
constexpr std::uint32_t tasks_by_default = 64;

Result<std::uint64_t> ask(Connection& connection, EntryKind kind, const std::vector<std::byte>& payload) {
  OFP_ASSIGN(const channel::Reply reply,
             connection.end.call(kind, payload, deadline_after(connection.end.now(), agent_answers_ns)));
  wire::Done done{};
  if (reply.kind != wire::ReplyKind::done)
    return fail(Error::protocol, "the agent answered a question about tasks with reply kind {}",
                static_cast<int>(reply.kind));
  OFP_TRY(wire::decode(reply.payload, done));
  return done.value;
}

// Others are for this program alone, when it runs functions itself.
bool may_be_told(const ofp_task_plugin& plugin) {
  return plugin.name != nullptr && plugin.path != nullptr && *plugin.name != 0 && *plugin.path == '/' &&
         std::strlen(plugin.name) <= wire::name_bytes_max && std::strlen(plugin.path) <= wire::task_path_bytes_max;
}

}  // namespace

Result<std::shared_ptr<TaskSession>> TaskSession::open(ConnectionPtr connection, const ofp_tasks_options& options) {
  std::shared_ptr<TaskSession> session(new TaskSession(std::move(connection)));
  const std::uint32_t lines = options.tasks_max != 0 ? options.tasks_max : tasks_by_default;
  if (lines > wire::task_lines_max)
    return fail(Error::too_large, "tasks_max is {}, at most {}", lines, wire::task_lines_max);
  HostEnd& end = session->connection_->end;
  const std::uint64_t length = lines * wire::task_line_bytes;
  OFP_ASSIGN(session->lines_, end.allocate(length, deadline_after(end.now(), agent_answers_ns)));
  session->lines_memory_ = end.segment(session->lines_).first(length);
  for (std::uint32_t line = lines; line-- > 0;) session->free_lines_.push_back(line);
  std::vector<std::byte> payload;
  const std::uint32_t lane = options.lanes == 0 ? wire::task_any_lane : options.lane;
  wire::TaskOpen asked{
      lane, options.lanes, {.region = session->lines_, .generation = 0, .offset = 0, .length = length}};
  if (options.team != nullptr) asked.team = options.team;
  for (std::uint32_t i = 0; i < options.plugins_count; ++i)
    if (may_be_told(options.plugins[i]) && asked.plugins.size() < wire::task_plugins_max)
      asked.plugins.push_back({options.plugins[i].name, options.plugins[i].path});
  wire::encode(asked, payload);
  auto number = ask(*session->connection_, EntryKind::task_open, payload);
  if (!number) {
    end.free(session->lines_);
    return tl::unexpected(std::move(number).error());
  }
  session->number_ = *number;
  session->connection_->add_range_user(session);
  return session;
}

void TaskSession::close() {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
  }
  std::vector<std::byte> payload;
  wire::encode(wire::TaskClose{number_}, payload);
  (void)ask(*connection_, EntryKind::task_close, payload);  // answered behind the last of its tasks
  const std::lock_guard lock(mutex_);
  sweep();
  connection_->end.free(lines_);
}

// ---- submitting

Result<BufferRef> TaskSession::name_input(const ofp_task_input& input, std::uint32_t& hint) {
  if (input.data == nullptr || input.bytes == 0) return BufferRef{};
  HostEnd& end = connection_->end;
  channel::HostEnd::Posting posting = end.begin();
  BufferRef name{};
  if (end.name_again(posting, input.data, input.bytes, hint, name)) return name;
  auto named = end.name_memory(posting, input.data, input.bytes, hint);
  if (named && (wire::is_segment(named->region) || !end.traits().staged)) return named;
  if (!end.traits().staged) {
    named = end.name_or_announce(posting, input.data, input.bytes, hint, never);
    if (named) announced_.push_back({named->region, named->generation});
    return named;
  }
  return fail(Error::unannounced, "staged");
}

Result<BufferRef> TaskSession::name_output(const ofp_task_output& output, std::uint32_t& hint) {
  if (output.data == nullptr || output.bytes == 0) return BufferRef{};
  HostEnd& end = connection_->end;
  channel::HostEnd::Posting posting = end.begin();
  BufferRef name{};
  if (end.name_again(posting, output.data, output.bytes, hint, name) && wire::is_segment(name.region)) return name;
  auto named = end.name_memory(posting, output.data, output.bytes, hint);
  if (!named || !wire::is_segment(named->region))
    return fail(Error::denied,
                "output \"{}\": {} bytes at {:#x} are not memory of ofp_alloc, and the agent writes to no other",
                output.name, output.bytes, reinterpret_cast<std::uintptr_t>(output.data));
  return named;
}

Status TaskSession::compose(const ofp_task_request& request, std::span<const std::uint64_t> after, Posted& task,
                            std::vector<std::byte>& payload) {
  OFP_TRY(required(request.function, "function"));
  const std::string_view function(request.function);
  const std::size_t slash = function.find('/');
  if (slash == std::string_view::npos)
    return fail(Error::invalid, "function \"{}\": expected \"plug-in/function\"", function);
  if (request.arguments_bytes > wire::arguments_bytes_max)
    return fail(Error::too_large, "arguments of {} bytes, at most {}: pass larger data as an input",
                request.arguments_bytes, wire::arguments_bytes_max);
  wire::TaskRun run{};
  run.session = number_;
  run.line = task.line;
  run.wait_ns = request.wait_ns > 0 ? request.wait_ns : 0;
  run.plugin = function.substr(0, slash);
  run.function = function.substr(slash + 1);
  run.after.assign(after.begin(), after.end());
  run.arguments = {static_cast<const std::byte*>(request.arguments), request.arguments_bytes};
  hints_.resize(std::max<std::size_t>(hints_.size(), request.inputs_count + request.outputs_count));
  for (std::uint32_t i = 0; i < request.inputs_count; ++i) {
    const ofp_task_input& input = request.inputs[i];
    OFP_TRY(required(input.name, "an input's name"));
    auto source = name_input(input, hints_[i]);
    if (!source && source.error().code == Error::unannounced && connection_->end.traits().staged) {
      OFP_ASSIGN(const Staging::Place place, connection_->staging.reserve(input.bytes, 0));
      task.staged.push_back(place);
      std::memcpy(place.data, input.data, input.bytes);
      source = BufferRef{.region = place.region, .generation = 0, .offset = place.offset, .length = input.bytes};
    }
    if (!source) return fail(source.error().code, "input \"{}\": {}", input.name, source.error().message);
    task.tells = task.tells || source->length != 0;
    if (source->length != 0 && !wire::is_segment(source->region))
      task.ranges.push_back({source->region, source->generation});
    run.inputs.push_back(
        {*source, input.bytes, input.version, input.changed_from, input.changed_at, input.changed_bytes, input.name});
  }
  for (std::uint32_t i = 0; i < request.outputs_count; ++i) {
    const ofp_task_output& output = request.outputs[i];
    OFP_TRY(required(output.name, "an output's name"));
    OFP_ASSIGN(const BufferRef target, name_output(output, hints_[request.inputs_count + i]));
    run.outputs.push_back({target, output.bytes, output.version, output.name});
  }
  wire::encode(run, payload);
  if (payload.size() > wire::entry_bytes_max)
    return fail(Error::too_large, "a task's request has {} bytes, at most {}", payload.size(), wire::entry_bytes_max);
  // Tasks that the agent would refuse are refused here, so that the caller gets the error at once.
  return wire::decode(payload, run);
}

Result<TaskSession::PostedPtr> TaskSession::submit(const ofp_task_request& request,
                                                   std::span<const std::uint64_t> after, ofp_task* handle) {
  std::vector<HostEnd::RangeName> announced;
  auto task = post(request, after, handle, announced);
  for (const HostEnd::RangeName& range : announced)
    connection_->remember(range);  // which may ask for this session's ranges
  return task;
}

Result<TaskSession::PostedPtr> TaskSession::post(const ofp_task_request& request, std::span<const std::uint64_t> after,
                                                 ofp_task* handle, std::vector<HostEnd::RangeName>& announced) {
  const std::lock_guard lock(mutex_);
  if (closed_) return fail(Error::closed, "the session of tasks is closed");
  sweep();
  if (free_lines_.empty())
    return fail(Error::would_block,
                "as many tasks are under way as the session was opened for (tasks_max): wait for one of them");
  auto task = std::make_shared<Posted>();
  task->line = free_lines_.back();
  std::vector<std::byte> payload;
  Status composed = compose(request, after, *task, payload);
  announced = std::exchange(announced_, {});
  Result<std::uint64_t> ticket = 0;
  if (composed) ticket = connection_->end.ask(EntryKind::task_run, payload, 0);
  if (!composed || !ticket) {
    for (const Staging::Place& place : task->staged) connection_->staging.give_up(place);
    return tl::unexpected(!composed ? std::move(composed).error() : std::move(ticket).error());
  }
  task->ticket = *ticket;
  free_lines_.pop_back();
  if (!task->ranges.empty()) pulling_.push_back(task);
  task->handle = handle;
  if (handle != nullptr) to_give_.emplace(task->ticket, task);
  return task;
}

// ---- its end

std::uint64_t TaskSession::line_of(const Posted& task) const noexcept {
  auto* const word = reinterpret_cast<std::uint64_t*>(lines_memory_.data() + task.line * wire::task_line_bytes);
  return std::atomic_ref<std::uint64_t>(*word).load(std::memory_order_acquire);
}

bool TaskSession::says_pulled(const Posted& task) {
  const std::lock_guard lock(mutex_);
  return !task.over && !closed_ && line_of(task) == task.ticket;  // the lines end with the session
}

void TaskSession::end(Posted& task, Status outcome) {
  task.over = true;
  task.outcome = std::move(outcome);
  if (task.asked != 0) connection_->end.forget(std::exchange(task.asked, 0));
  for (const Staging::Place& place : std::exchange(task.staged, {})) connection_->staging.give_up(place);
  free_lines_.push_back(task.line);
  if (auto given = to_give_.extract(task.ticket)) ended_.push_back(std::move(given.mapped()));
}

// Takes its reply, if it is there.
bool TaskSession::settle(Posted& task) {
  if (task.over) return true;
  auto reply = connection_->end.take_reply(task.ticket);
  if (!reply) return false;
  auto passed = channel::unfailed(std::move(*reply));
  if (!passed) {
    end(task, tl::unexpected(std::move(passed).error()));
  } else if (passed->kind != wire::ReplyKind::task_done) {
    end(task, fail(Error::protocol, "the agent answered a task with reply kind {}", static_cast<int>(passed->kind)));
  } else {
    end(task, wire::decode(passed->payload, task.done));
  }
  return true;
}

Status TaskSession::wait(Posted& task, TimeNs deadline) {
  HostEnd& end = connection_->end;
  while (true) {
    Status alive = end.take_in();
    {
      const std::lock_guard lock(mutex_);
      if (settle(task)) return task.outcome;
      if (!alive || (deadline == 0 && !(alive = end.poll_beside()))) {
        this->end(task, alive);
        return task.outcome;
      }
    }
    if (deadline == 0 || end.now() >= deadline) return fail(Error::would_block, "the task is not over yet");
    // A lost agent is found by the next look.
    if (auto slept = end.wait_reply({&task.ticket, 1}, deadline); channel::is_interrupted(slept))
      return tl::unexpected(std::move(slept).error());
  }
}

Result<ofp_task*> TaskSession::next(TimeNs deadline) {
  HostEnd& end = connection_->end;
  std::vector<std::uint64_t> tickets;
  while (true) {
    Status alive = end.take_in();
    if (alive && deadline == 0) alive = end.poll_beside();
    {
      const std::lock_guard lock(mutex_);
      tickets.clear();
      if (ended_.empty()) {
        for (const auto& [ticket, task] : to_give_) tickets.push_back(ticket);
        for (const std::uint64_t ticket : tickets) {
          const PostedPtr task = to_give_.at(ticket);
          if (!settle(*task) && !alive) this->end(*task, alive);
        }
      }
      if (!ended_.empty()) {
        ofp_task* const handle = ended_.front()->handle;
        ended_.pop_front();
        return handle;
      }
      if (tickets.empty())
        return fail(Error::not_found, "no task of this session is under way, and all finished ones were returned");
    }
    TimeNs until = deadline;
    if (deadline == 0 || end.now() >= deadline) {
      if (end.arm_replies()) return fail(Error::would_block, "no task of this session is over yet");
      until = deadline_after(end.now(), millisecond_ns);  // there is a reply, or no room to ask for the wake
    }
    if (auto slept = end.wait_reply(tickets, until); channel::is_interrupted(slept))
      return tl::unexpected(std::move(slept).error());
  }
}

Status TaskSession::wait_pulled(Posted& task, TimeNs deadline) {
  const HostEnd& end = connection_->end;
  return wait_pulled(task, deadline, end.in_virtual_time() ? 0 : end.now() + spin_ns);
}

Status TaskSession::wait_pulled(Posted& task, TimeNs deadline, TimeNs spin_until) {
  HostEnd& end = connection_->end;
  Status status;
  while (true) {
    if (!task.tells || says_pulled(task)) break;
    status = wait(task, 0);
    if (status || status.error().code != Error::would_block) break;
    const TimeNs now = end.now();
    if (now >= deadline) return fail(Error::would_block, "the task's inputs are not pulled yet");
    if (now < spin_until) continue;
    std::uint64_t asked = 0;
    {
      const std::lock_guard lock(mutex_);
      if (task.asked != 0 && end.take_reply(task.asked)) {
        task.asked = 0;
        break;
      }
      asked = task.asked;
    }
    if (asked == 0) {
      std::vector<std::byte> payload;
      wire::encode(wire::TaskWait{task.ticket}, payload);
      const auto ticket = end.ask(EntryKind::task_wait, payload, deadline);
      if (channel::is_interrupted(ticket)) return tl::unexpected(ticket.error());
      if (!ticket) continue;
      const std::lock_guard lock(mutex_);
      if (task.over || task.asked != 0)
        end.forget(*ticket);  // another thread was faster
      else
        task.asked = *ticket;
      continue;
    }
    const std::uint64_t either[] = {asked, task.ticket};
    if (auto slept = end.wait_reply(either, deadline); channel::is_interrupted(slept))
      return tl::unexpected(std::move(slept).error());
  }
  const std::lock_guard lock(mutex_);
  if (task.over && !task.outcome) return task.outcome;
  for (const Staging::Place& place : std::exchange(task.staged, {})) connection_->staging.give_up(place);
  return {};
}

// A task whose inputs are not known to be pulled. The other tasks' ranges are removed.
TaskSession::PostedPtr TaskSession::pulls_from(HostEnd::RangeName range) {
  const std::lock_guard lock(mutex_);
  if (closed_) return nullptr;
  std::erase_if(pulling_, [this](const PostedPtr& task) { return task->over || line_of(*task) == task->ticket; });
  const auto at = std::ranges::find_if(pulling_, [&](const PostedPtr& task) {
    return std::ranges::any_of(task->ranges, [&](const HostEnd::RangeName& each) {
      return each.region == range.region && each.generation == range.generation;
    });
  });
  return at != pulling_.end() ? *at : nullptr;
}

Status TaskSession::leave(HostEnd::RangeName range, TimeNs deadline) {
  OFP_TRY(connection_->end.take_in());
  while (const PostedPtr task = pulls_from(range)) {
    const Status pulled = wait_pulled(*task, deadline, 0);
    if (!pulled && pulled.error().code == Error::would_block)
      return fail(Error::would_block, "task {} still pulls from this range", task->ticket);
    const std::lock_guard lock(mutex_);
    std::erase(pulling_, task);
  }
  return {};
}

Status TaskSession::cancel(Posted& task) {
  const std::lock_guard lock(mutex_);
  if (settle(task)) return {};
  std::vector<std::byte> payload;
  wire::encode(wire::TaskCancel{task.ticket}, payload);
  const auto posted =
      connection_->end.post(EntryKind::task_cancel, payload, deadline_after(connection_->end.now(), second_ns));
  return posted ? Status{} : tl::unexpected(posted.error());
}

void TaskSession::withdraw(const PostedPtr& task) {
  if (connection_->here()) (void)cancel(*task);
  const std::lock_guard lock(mutex_);
  to_give_.erase(task->ticket);
  if (task->over)
    std::erase(ended_, task);
  else
    withdrawn_.push_back(task);
}

void TaskSession::sweep() {
  if (withdrawn_.empty()) return;
  (void)connection_->end.take_in();
  std::erase_if(withdrawn_, [this](const PostedPtr& task) { return settle(*task); });
}

}  // namespace offpath::host
