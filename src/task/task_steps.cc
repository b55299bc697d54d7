// From waiting to calling: performs the next possible step of a session's tasks.
#include <algorithm>
#include <utility>

#include "task/task_service.h"
#include "wire/messages/task_messages.h"

namespace offpath::task {

using service::Effects;
using service::ServiceId;

namespace {

constexpr TimeNs look_again_ns = millisecond_ns;  // for memory that an abandoned call still uses

}  // namespace

void TaskService::settle(TimeNs now, Effects& effects) {
  for (bool any = true; std::exchange(any, false);) {
    if (std::exchange(freed_, false)) look_again_for_room();
    for (const auto& [number, session] : sessions_) {
      if (!std::exchange(session->dirty, false)) continue;
      any = true;
      advance(*session, now, effects);
      std::erase_if(session->tasks, [](const auto& task) { return task->state == Task::State::over; });
    }
    any = any || (freed_ && waits_for_memory());
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
        channels_.at(session.channel).short_of_room.insert(task.number);
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
  TimeNs spent = now - task.since;
  if (task.state == Task::State::calling && task.report->began >= task.since) {  // a worker's turn may have come later
    task.times.queued_ns += task.report->began - task.since;
    counters_.queued_ns += task.report->began - task.since;
    spent = now - task.report->began;
    task.times.worker = task.report->worker;
  }
  task.times.*took += spent;
  counters_.*sum += spent;
  if (task.state == Task::State::waiting) channels_.at(task.session->channel).short_of_room.erase(task.number);
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
    if (input.source.length == 0 && input.bytes != 0)
      return fail(Error::not_found,
                  "{}: input \"{}\" is not on the agent as version {}, and has no memory to pull it from", task.name(),
                  input.name, input.version);
    if (each.need != ResidentMemory::Need::whole) continue;
    if (input.version != 0) resident_bytes += input.bytes - session.resident.bytes_of(input.name);
  }
  if (resident_bytes > limits_.resident_bytes_max)
    return fail(Error::too_large, "{}: {} bytes of inputs would stay on the agent, at most {} may", task.name(),
                resident_bytes, limits_.resident_bytes_max);
  return found;
}

Result<TaskService::Begun> TaskService::begin(Task& task, TimeNs now, Effects& effects) {
  OFP_ASSIGN(std::vector<ResidentMemory::Found> found, find_inputs(task));
  if (!found.empty() && found.front().need == ResidentMemory::Need::later) return Begun::later;
  OFP_ASSIGN(const bool has_room, take_room(task, found));
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
    pieces.push_back({input.source.region, input.source.generation, input.source.offset + at,
                      input.memory->buffer.data() + at, length, !input.memory->buffer.is_shared()});
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
  if (std::ranges::none_of(task.inputs, [](const Input& input) { return input.source.length != 0; })) return {};
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

}  // namespace offpath::task
