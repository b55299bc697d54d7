// The steps of tasks, from waiting to their end.
#include <algorithm>
#include <utility>

#include "task/task_service.h"
#include "wire/messages/replies.h"
#include "wire/messages/task_messages.h"

namespace offpath::task {

using service::Effects;
using service::FailEffect;
using service::ReplyEffect;
using service::ServiceId;

namespace {

constexpr TimeNs look_again_ns = millisecond_ns;  // for memory that an abandoned call still uses

}  // namespace

void TaskService::settle(TimeNs now, Effects& effects) {
  for (bool any = true; std::exchange(any, false);) {
    if (room_.take_freed())
      for (const std::uint64_t task : room_.waiting()) tasks_.at(task)->session->dirty = true;
    for (const auto& [number, session] : sessions_) {
      if (!std::exchange(session->dirty, false)) continue;
      any = true;
      advance(*session, now, effects);
      std::erase_if(session->tasks, [](const auto& task) { return task->state == Task::State::over; });
    }
    any = any || (room_.is_freed() && room_.waits());
  }
}

void TaskService::advance(Session& session, TimeNs now, Effects& effects) {
  std::size_t ahead = 0;
  for (const auto& task : session.tasks)
    ahead += task->state >= Task::State::pulling && task->state <= Task::State::calling;
  const std::size_t ahead_max = session.is_ordered() ? limits_.ahead_max : limits_.side_by_side_max;
  bool all_begun = true, all_called = true;
  for (const auto& each : session.tasks) {
    Task& task = *each;
    if (task.state == Task::State::waiting && task.waits_for == 0 && ahead < ahead_max &&
        (all_begun || !session.is_ordered())) {
      const auto begun = begin(task, now, effects);
      if (!begun) {
        end_task(task, tl::unexpected(begun.error()), now, effects);
      } else if (*begun == Begun::yes) {
        ++ahead;
      } else if (*begun == Begun::later) {
        session.looks_again = true;
        look_again_ = std::min(look_again_, now + look_again_ns);
      } else {
        room_.wait(task);
      }
    }
    if (task.state == Task::State::pulling)
      if (Status pulled = check_pulled(task, now, effects); !pulled) end_task(task, std::move(pulled), now, effects);
    if (task.state == Task::State::ready && (all_called || !session.is_ordered())) call(task, now, effects);
    all_begun = all_begun && task.state != Task::State::waiting;
    all_called = all_called && task.state >= Task::State::calling;
  }
}

void TaskService::enter(Task& task, Task::State state, TimeNs now) {
  TimeNs wire::TaskDone::* const took = task.state == Task::State::pulling   ? &wire::TaskDone::pulled_ns
                                        : task.state == Task::State::calling ? &wire::TaskDone::ran_ns
                                        : task.state == Task::State::pushing ? &wire::TaskDone::pushed_ns
                                                                             : &wire::TaskDone::queued_ns;
  TimeNs TaskCounters::* const sum = task.state == Task::State::pulling   ? &TaskCounters::pulling_ns
                                     : task.state == Task::State::calling ? &TaskCounters::running_ns
                                     : task.state == Task::State::pushing ? &TaskCounters::pushing_ns
                                                                          : &TaskCounters::queued_ns;
  now = std::max(now, task.since);
  TimeNs spent = now - task.since;
  if (task.state == Task::State::calling && task.report->began >= task.since) {  // a worker's turn may have come later
    task.times.queued_ns += task.report->began - task.since;
    counters_.queued_ns += task.report->began - task.since;
    now = std::max(now, task.report->ended);  // the round's time may be earlier than both
    spent = now - task.report->began;
    task.times.worker = task.report->worker;
  }
  task.times.*took += spent;
  counters_.*sum += spent;
  if (task.state == Task::State::waiting) room_.stop_waiting(task);
  if (task.state < Task::State::calling && state >= Task::State::calling) {
    --counters_.waiting;
    deadlines_.erase({task.deadline, task.number});
  }
  if (task.state == Task::State::calling) --counters_.running;
  if (state == Task::State::calling) ++counters_.running;
  task.since = now;
  task.state = state;
}

// The inputs to pull. If the first one is Need::later, none is pulled now.
Result<std::vector<ResidentMemory::Found>> TaskService::find_inputs(const Task& task) const {
  const Session& session = *task.session;
  std::vector<ResidentMemory::Found> found;
  std::uint64_t resident_bytes = session.resident.bytes();
  for (const Input& input : task.inputs) {
    auto& each = found.emplace_back();
    if (input.version != 0) each = session.resident.find(input.name, input.version, input.bytes, input.changed_from);
    if (each.need == ResidentMemory::Need::later) return std::vector{each};
    if (each.need == ResidentMemory::Need::nothing) continue;
    if (input.given < input.bytes)
      return fail(Error::not_found,
                  "{}: input \"{}\" is not on the agent as version {}, and has no memory to pull it from", task.name(),
                  input.name, input.version);
    if (each.need != ResidentMemory::Need::whole) continue;
    if (input.version != 0) resident_bytes += input.bytes - session.resident.bytes_of(input.name);
  }
  if (resident_bytes > limits_.resident_bytes_max)
    return fail(Error::too_large,
                "{}: {} bytes of inputs would stay on the agent, at most {} are allowed (task.resident_max)",
                task.name(), resident_bytes, limits_.resident_bytes_max);
  return found;
}

Result<TaskService::Begun> TaskService::begin(Task& task, TimeNs now, Effects& effects) {
  OFP_ASSIGN(std::vector<ResidentMemory::Found> found, find_inputs(task));
  if (!found.empty() && found.front().need == ResidentMemory::Need::later) return Begun::later;
  OFP_ASSIGN(const bool has_room, room_.take(task, programs_.at(task.session->channel).user(), found));
  if (!has_room) return Begun::no_room;
  begin_pulls(task, std::move(found), now, effects);
  return Begun::yes;
}

void TaskService::begin_pulls(Task& task, std::vector<ResidentMemory::Found> found, TimeNs now, Effects& effects) {
  Session& session = *task.session;
  Transfer transfer{Transfer::Kind::pull, session.channel, task.number, {}};
  std::vector<link::ReadPiece> pieces;
  for (std::size_t i = 0; i < found.size(); ++i) {
    Input& input = task.inputs[i];
    input.memory = found[i].memory;
    counters_.resident_hits += found[i].need == ResidentMemory::Need::nothing;
    counters_.resident_parts += found[i].need == ResidentMemory::Need::part;
    if (found[i].need == ResidentMemory::Need::nothing) continue;
    const bool part = found[i].need == ResidentMemory::Need::part;
    const std::uint64_t at = part ? input.changed_at : 0, length = part ? input.changed_bytes : input.bytes;
    if (input.version != 0) session.resident.keep(input.name, input.version, input.memory);
    input.memory->state = length != 0 ? Memory::State::filling : Memory::State::filled;
    if (length == 0) continue;
    std::byte* to = input.memory->buffer.data() + at;
    for (const wire::BufferRef& source : input.sources) {
      const std::uint64_t bytes = part ? length : source.length;
      pieces.push_back(
          {source.region, source.generation, source.offset + at, to, bytes, !input.memory->buffer.is_shared()});
      to += bytes;
    }
    transfer.memory.push_back(input.memory);
    task.times.pulled_bytes += length;
    counters_.pulled_bytes += length;
  }
  enter(task, Task::State::pulling, now);
  if (pieces.empty()) return;
  effects.push_back(service::PullEffect{
      session.channel, service::token_of(ServiceId::task, begin_transfer(std::move(transfer))), std::move(pieces)});
}

// Another task may pull some of the inputs.
Status TaskService::check_pulled(Task& task, TimeNs now, Effects& effects) {
  for (const Input& input : task.inputs) {
    if (input.memory->state == Memory::State::filling) return {};
    if (input.memory->state == Memory::State::failed)
      return fail(input.memory->failure.code, "{}: input \"{}\": {}", task.name(), input.name,
                  input.memory->failure.message);
  }
  enter(task, Task::State::ready, now);
  task.pulled = true;
  answer_waiters(task, effects);
  if (std::ranges::none_of(task.inputs, [](const Input& input) { return input.given != 0; })) return {};
  const Session& session = *task.session;
  const std::uint64_t number = begin_transfer({Transfer::Kind::told, session.channel, task.number, {}, task.ticket});
  const auto* const word = reinterpret_cast<const std::byte*>(&transfers_.at(number).word);
  effects.push_back(service::PushEffect{
      session.channel,
      service::token_of(ServiceId::task, number),
      {{session.lines.region, session.lines.offset + task.line * wire::task_line_bytes, word, sizeof(std::uint64_t)}},
      nullptr});
  return {};
}

void TaskService::call(Task& task, TimeNs now, Effects& effects) {
  Session& session = *task.session;
  auto asked = std::make_shared<plugin::Call>();
  asked->plugin = task.plugin;
  asked->function = task.function;
  asked->arguments = task.arguments;
  if (const auto own = session.plugins.find(task.plugin); own != session.plugins.end()) {
    asked->own = own->second.plugin;
    asked->own_refused = own->second.refused;
  }
  asked->deadline_ns = task.deadline;
  asked->output_bytes_max = 0;
  asked->session = session.number;
  asked->lanes = session.is_ordered() ? session.lanes : 0;
  asked->lane = session.is_ordered() ? session.lane : 0;
  asked->team = session.team;
  asked->report = task.report = std::make_shared<plugin::CallReport>();
  for (const Output& output : task.outputs) {
    asked->output_bytes_max += output.bytes_max;
    plugin::Room room;
    room.name = output.name;
    room.bytes = output.bytes_max;
    if (output.room) {
      room.fd = output.room->fd();
      room.kept = output.room->number();
      room.kept_bytes = output.room->capacity();
      room.owner = output.room;
    }
    asked->rooms.push_back(std::move(room));
  }
  for (const Input& input : task.inputs) {
    plugin::Input given;
    given.column = input.name;
    given.owner = input.memory;
    if (input.bytes != 0) {
      given.fd = input.memory->share();
      given.bytes = input.bytes;
      given.kept = input.memory->number;
      given.kept_bytes = input.memory->capacity();
    }
    asked->inputs.push_back(std::move(given));
  }
  enter(task, Task::State::calling, now);
  effects.push_back(service::CallEffect{service::token_of(ServiceId::task, task.number), std::move(asked)});
}

// ---- results of workers and links

void TaskService::on_called(std::uint64_t token, Result<plugin::Outputs> outcome, TimeNs now, Effects& effects) {
  Task* const task = find(service::number_of(token));
  if (task == nullptr) return;  // cancelled
  OFP_ASSERT(task->state == Task::State::calling);
  std::vector<link::WritePiece> pieces;
  // A function that was asked to return at its deadline has usually failed for that reason.
  if (!outcome && outcome.error().code == Error::function_failed && task->deadline <= now)
    outcome = fail(Error::timeout, "its deadline passed: {}", outcome.error().message);
  Status taken =
      outcome ? take_outputs(*task, std::move(*outcome), pieces) : Status(tl::unexpected(std::move(outcome).error()));
  if (!taken) {
    end_task(*task, std::move(taken), now, effects);
  } else if (pieces.empty()) {
    end_task(*task, {}, now, effects);
  } else {
    enter(*task, Task::State::pushing, now);
    for (Input& input : task->inputs) input.memory.reset();  // the next task may have a part pulled onto it
    Transfer transfer{Transfer::Kind::push, task->session->channel, task->number};
    for (const Output& output : task->outputs) transfer.rooms.push_back(output.room);
    transfer.mapped = std::move(task->mapped);
    const std::uint64_t number = begin_transfer(std::move(transfer));
    effects.push_back(service::PushEffect{task->session->channel, service::token_of(ServiceId::task, number),
                                          std::move(pieces), nullptr});
    task->session->dirty = true;
  }
  settle(now, effects);
}

Status TaskService::take_outputs(Task& task, plugin::Outputs outputs, std::vector<link::WritePiece>& pieces) {
  Session& session = *task.session;
  std::vector<std::pair<Output*, MemoryPtr>> kept;
  std::uint64_t resident_bytes = session.resident.bytes();
  for (plugin::Output& made : outputs) {
    const auto named = std::ranges::find(task.outputs, made.name, &Output::name);
    if (named == task.outputs.end())
      return fail(Error::invalid, "{} made an output \"{}\" that the task does not name", task.name(), made.name);
    if (made.bytes > named->bytes_max)
      return fail(Error::too_large, "{}: output \"{}\" has {} bytes, but there is room for {}", task.name(), made.name,
                  made.bytes, named->bytes_max);
    named->bytes = made.bytes;
    if (named->target.length != 0 && made.bytes != 0) {
      const std::byte* from = made.in_room && named->room ? named->room->data() : nullptr;
      if (from == nullptr) {
        OFP_ASSIGN(MappedOutput mapped, MappedOutput::map(made.memory.get(), made.bytes));
        from = task.mapped.emplace_back(std::move(mapped)).data();
      }
      pieces.push_back({named->target.region, named->target.offset, from, made.bytes});
    }
    if (named->version == 0) continue;
    resident_bytes += made.bytes - session.resident.bytes_of(named->name);
    auto memory = std::make_shared<Memory>();
    memory->number = room_.next_number();
    memory->made = std::move(made.memory);
    memory->bytes = made.bytes;
    memory->state = Memory::State::filled;
    kept.emplace_back(&*named, std::move(memory));
  }
  if (resident_bytes > limits_.resident_bytes_max)
    return fail(Error::too_large, "{}: {} bytes would stay on the agent, at most {} are allowed (task.resident_max)",
                task.name(), resident_bytes, limits_.resident_bytes_max);
  for (auto& [output, memory] : kept) session.resident.keep(output->name, output->version, std::move(memory));
  return {};
}

void TaskService::on_transfer(std::uint64_t token, Status status, TimeNs now, Effects& effects) {
  const auto node = transfers_.extract(service::number_of(token));
  if (!node) return;  // its session or its channel has ended
  const Transfer& transfer = node.mapped();
  Task* const task = find(transfer.task);
  if (transfer.kind == Transfer::Kind::pull) {
    for (const MemoryPtr& memory : transfer.memory) {
      memory->state = status ? Memory::State::filled : Memory::State::failed;
      if (!status) memory->failure = status.error();
    }
    // Another task may wait for it, even if the task that began it was cancelled.
    for (const auto& [number, session] : sessions_) {
      if (session->channel != transfer.channel) continue;
      session->dirty = true;
      if (!status)
        for (const MemoryPtr& memory : transfer.memory) session->resident.drop(memory);
    }
  } else if (transfer.kind == Transfer::Kind::push && task != nullptr) {
    if (status)
      for (const Output& output : task->outputs) counters_.pushed_bytes += output.target.length != 0 ? output.bytes : 0;
    end_task(*task,
             status
                 ? Status{}
                 : fail(status.error().code, "{}: outputs cannot be pushed: {}", task->name(), status.error().message),
             now, effects);
  }
  settle(now, effects);
}

// ---- the end of tasks

void TaskService::answer_waiters(Task& task, Effects& effects) {
  for (const std::uint64_t ticket : std::exchange(task.who_waits, {}))
    effects.push_back(ReplyEffect{task.session->channel, ticket, wire::Done{0}});
}

// Ends a task and, if it failed, all tasks that depend on it: a list, because chains may be long.
void TaskService::end_task(Task& first, Status outcome, TimeNs now, Effects& effects) {
  std::vector<std::pair<Task*, Status>> ending;
  ending.emplace_back(&first, std::move(outcome));
  for (std::size_t i = 0; i < ending.size(); ++i) {
    Task& task = *ending[i].first;
    if (task.state == Task::State::over) continue;
    const Status status = std::move(ending[i].second);
    const std::vector<std::uint64_t> after = end_one(task, status, now, effects);
    const Task::Reason reason =
        status ? Task::Reason{} : task.because.value_or(Task::Reason{task.ticket, status.error().message});
    for (const std::uint64_t number : after) {
      Task* const next = find(number);
      if (next == nullptr) continue;
      --next->waits_for;
      next->session->dirty = true;
      if (status) continue;
      next->because = reason;
      ending.emplace_back(next, comes_after(*next));
    }
  }
}

Status TaskService::comes_after(const Task& task) {
  return fail(Error::cancelled, "{} depends on task {}, which failed: {}", task.name(), task.because->ticket,
              task.because->why);
}

// Returns the numbers of those that come after it. settle() removes it from its session's list.
std::vector<std::uint64_t> TaskService::end_one(Task& task, const Status& status, TimeNs now, Effects& effects) {
  Session& session = *task.session;
  enter(task, Task::State::over, now);
  tasks_.erase(task.number);
  session.dirty = true;
  room_.note_freed();
  answer_waiters(task, effects);
  if (status) {
    ++counters_.done;
    for (const Output& output : task.outputs) task.times.output_bytes.push_back(output.bytes);
    effects.push_back(ReplyEffect{session.channel, task.ticket, std::move(task.times)});
  } else {
    ++counters_.failed;
    effects.push_back(FailEffect{session.channel, task.ticket, wire::any_reply, status.error()});
  }
  return programs_.at(session.channel).end(task, status);
}

}  // namespace offpath::task
