#include "task/task_service.h"

#include <algorithm>
#include <set>
#include <utility>

#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"

namespace offpath::task {

using service::ChannelNumber;
using service::Effects;
using service::FailEffect;
using service::ReplyEffect;
using service::ServiceId;
using wire::EntryKind;

namespace {

constexpr std::size_t waits_of_task_max = 64;  // a program asks once for each task, a hostile one any
                                               // number of times

}  // namespace

TaskService::TaskService(Limits limits, std::shared_ptr<service::BufferCache> cache,
                         std::function<bool(std::uint64_t)> room)
    : limits_(limits),
      user_plugins_(limits.user_plugins),
      room_(cache, room),
      messages_(limits.messages, std::move(cache), std::move(room)) {}

TaskService::~TaskService() = default;

void TaskService::on_opened(const service::OpenedChannel& channel) {
  programs_.insert_or_assign(channel.number, Program(channel.client.user, channel.client.group));
}

// No request waits any more. Its transfers have ended before.
void TaskService::on_closed(ChannelNumber channel, bool /*usual*/, TimeNs now, Effects& effects) {
  for (const auto& [ticket, task] : programs_.at(channel).tasks()) {
    if (task->state == Task::State::calling) {
      effects.push_back(service::CancelCallEffect{service::token_of(ServiceId::task, task->number)});
      --counters_.running;
    }
    if (task->state < Task::State::calling) {
      --counters_.waiting;
      deadlines_.erase({task->deadline, task->number});
    }
    ++counters_.failed;
    tasks_.erase(task->number);
  }
  std::erase_if(transfers_, [&](const auto& each) { return each.second.channel == channel; });
  for (const auto& [number, session] : sessions_)
    if (session->channel == channel) {
      messages_.close(number, now, effects);
      room_.close_session(number);
    }
  std::erase_if(sessions_, [&](const auto& each) { return each.second->channel == channel; });
  room_.close_channel(channel);
  programs_.erase(channel);
  on_memory_freed(now, effects);
}

Task* TaskService::find(std::uint64_t number) {
  const auto at = tasks_.find(number);
  return at != tasks_.end() ? at->second : nullptr;
}

std::uint64_t TaskService::begin_transfer(Transfer transfer) {
  const std::uint64_t number = next_transfer_++;
  transfers_.emplace(number, std::move(transfer));
  return number;
}

TimeNs TaskService::next_deadline() const noexcept {
  if (room_.is_freed() && room_.waits()) return 0;
  return deadlines_.empty() ? look_again_ : std::min(look_again_, deadlines_.begin()->first);
}

void TaskService::on_time(TimeNs now, Effects& effects) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    Task& task = *tasks_.at(deadlines_.begin()->second);
    const bool no_room = room_.is_waiting(task);
    end_task(task,
             no_room
                 ? fail(Error::timeout, "{}: its deadline passed while it waited for room for {} bytes on the agent",
                        task.name(), task.room_bytes)
                 : fail(Error::timeout, "{}: its deadline passed before a worker began with it", task.name()),
             now, effects);
  }
  if (look_again_ <= now) {
    look_again_ = never;
    for (const auto& [number, session] : sessions_) session->dirty |= std::exchange(session->looks_again, false);
  }
  settle(now, effects);
}

void TaskService::on_memory_freed(TimeNs now, Effects& effects) {
  room_.note_freed();
  settle(now, effects);
}

std::uint64_t TaskService::memory_wanted() const {
  const auto at = tasks_.find(room_.oldest());
  return at == tasks_.end() ? 0 : at->second->room_bytes;
}

TaskCounters TaskService::counters() const {
  TaskCounters all = counters_;
  all.target_bytes = room_.target_bytes();
  all.sessions = sessions_.size();
  for (const auto& [number, session] : sessions_) all.resident_bytes += session->resident.bytes();
  return all;
}

// ---- requests of programs

void TaskService::on_request(const service::Request& asked, TimeNs now, Effects& effects) {
  if (Status served = serve(asked.channel, asked.entry, now, effects); !served)
    effects.push_back(FailEffect{asked.channel, asked.entry.ticket, wire::any_reply, std::move(served).error()});
  settle(now, effects);
}

Status TaskService::serve(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  switch (static_cast<EntryKind>(request.kind)) {
    case EntryKind::task_open:
      return open(channel, request, now, effects);
    case EntryKind::task_run:
      return run(channel, request, now, effects);
    case EntryKind::task_wait:
      return wait(channel, request, effects);
    case EntryKind::task_cancel:
      return cancel(channel, request, now, effects);
    case EntryKind::task_close:
      return close(channel, request, now, effects);
    default:
      return fail(Error::protocol, "request of kind {} does not belong to tasks", request.kind);
  }
}

Result<Session*> TaskService::own(ChannelNumber channel, std::uint64_t number) {
  const auto at = sessions_.find(number);
  if (at == sessions_.end() || at->second->channel != channel)
    return fail(Error::not_found, "this program has no session {} of tasks", number);
  return at->second.get();
}

Status TaskService::open(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::TaskOpen asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  Program& program = programs_.at(channel);
  OFP_TRY(program.may_open(limits_.sessions_max));
  if (!asked.team.empty())
    OFP_TRY(messages_.open(next_session_, program.user(), asked.team, asked.lane, asked.lanes, now, effects));
  program.open();
  auto session = std::make_unique<Session>();
  session->number = next_session_++;
  session->channel = channel;
  session->lane = asked.lane;
  session->lanes = asked.lanes;
  session->lines = asked.lines;
  if (!asked.team.empty())
    session->team =
        std::make_shared<const std::string>(fmt::format("{}/{}/{}", program.user(), asked.lanes, asked.team));
  for (const wire::TaskPlugin& each : asked.plugins) {
    auto own = user_plugins_.find(program.user(), program.group(), each.path);
    if (own)
      session->plugins[std::string(each.name)] = {std::move(*own), {}};
    else
      session->plugins[std::string(each.name)] = {nullptr, own.error().message};
  }
  effects.push_back(ReplyEffect{channel, request.ticket, wire::Done{session->number}});
  sessions_.emplace(session->number, std::move(session));
  return {};
}

Result<std::unique_ptr<Task>> TaskService::make_task(Session& session, std::uint64_t ticket, wire::TaskRun asked,
                                                     TimeNs now) const {
  if (asked.line >= session.lines.length / wire::task_line_bytes)
    return fail(Error::protocol, "a task names line {}, but there are {}", asked.line,
                session.lines.length / wire::task_line_bytes);
  auto task = std::make_unique<Task>();
  task->session = &session;
  task->ticket = ticket;
  task->line = asked.line;
  task->deadline = asked.wait_ns > 0 ? deadline_after(now, asked.wait_ns) : never;
  task->plugin = asked.plugin;
  task->function = asked.function;
  task->since = now;
  std::set<std::string_view> names;
  for (const wire::TaskInput& each : asked.inputs) {
    const bool is_piece = !task->inputs.empty() && task->inputs.back().name == each.name;
    if (!is_piece && !names.insert(each.name).second)
      return fail(Error::exists, "{}: two inputs are called \"{}\"", task->name(), each.name);
    if (!is_piece)
      task->inputs.push_back(
          {{}, 0, each.version, each.changed_from, each.changed_at, each.changed_bytes, std::string(each.name)});
    Input& input = task->inputs.back();
    input.bytes += each.bytes;
    input.given += each.source.length;
    if (each.source.length != 0) input.sources.push_back(each.source);
  }
  names.clear();
  for (const wire::TaskOutput& each : asked.outputs) {
    if (!names.insert(each.name).second)
      return fail(Error::exists, "{}: two outputs are called \"{}\"", task->name(), each.name);
    task->outputs.push_back({each.target, each.bytes, each.version, std::string(each.name)});
  }
  task->arguments.assign(asked.arguments.begin(), asked.arguments.end());
  task->after = std::move(asked.after);
  return task;
}

Status TaskService::run(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::TaskRun asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  OFP_ASSIGN(Session* const session, own(channel, asked.session));
  Program& program = programs_.at(channel);
  OFP_TRY(program.may_add(request.ticket, limits_.tasks_max));
  OFP_ASSIGN(std::unique_ptr<Task> task, make_task(*session, request.ticket, std::move(asked), now));
  task->number = next_number_++;
  ++counters_.asked;
  ++counters_.waiting;
  tasks_.emplace(task->number, task.get());
  Task& asked_for = *session->tasks.emplace_back(std::move(task));
  session->dirty = true;
  if (asked_for.deadline != never) deadlines_.emplace(asked_for.deadline, asked_for.number);
  program.add(asked_for);
  if (asked_for.because) end_task(asked_for, comes_after(asked_for), now, effects);
  return {};
}

Status TaskService::wait(ChannelNumber channel, const channel::Entry& request, Effects& effects) {
  wire::TaskWait asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  Task* const task = programs_.at(channel).find(asked.ticket);
  if (task == nullptr || task->pulled) {
    effects.push_back(ReplyEffect{channel, request.ticket, wire::Done{0}});
    return {};
  }
  if (task->who_waits.size() >= waits_of_task_max)
    return fail(Error::too_large,
                "{} requests wait for the inputs of {}, at most {} are allowed: ask once for each task",
                task->who_waits.size(), task->name(), waits_of_task_max);
  task->who_waits.push_back(request.ticket);
  return {};
}

Status TaskService::cancel(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::TaskCancel asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  if (Task* const task = programs_.at(channel).find(asked.ticket)) cancel_task(*task, "its program", now, effects);
  return {};
}

Status TaskService::close(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::TaskClose asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  OFP_ASSIGN(Session* const session, own(channel, asked.session));
  for (const auto& task : session->tasks) {
    if (task->state == Task::State::pushing)
      end_task(*task, fail(Error::cancelled, "{}: its session was closed", task->name()), now, effects);
    else
      cancel_task(*task, "the end of its session", now, effects);
  }
  programs_.at(channel).close();
  messages_.close(asked.session, now, effects);
  sessions_.erase(asked.session);
  room_.close_session(asked.session);
  effects.push_back(ReplyEffect{channel, request.ticket, wire::Done{0}});
  return {};
}

// A running push continues, because the program's memory is being written.
void TaskService::cancel_task(Task& task, const std::string& why, TimeNs now, Effects& effects) {
  if (task.state == Task::State::over || task.state == Task::State::pushing) return;
  if (task.state == Task::State::calling)
    effects.push_back(service::CancelCallEffect{service::token_of(ServiceId::task, task.number)});
  ++counters_.cancelled;
  end_task(task, fail(Error::cancelled, "{} was cancelled by {}", task.name(), why), now, effects);
}

}  // namespace offpath::task
