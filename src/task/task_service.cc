#include "task/task_service.h"

#include <algorithm>
#include <set>
#include <utility>

namespace offpath::task {

using mover::ChannelNumber;
using mover::Effects;
using mover::FailEffect;
using mover::ReplyEffect;
using mover::Service;
using wire::EntryKind;

namespace {

constexpr TimeNs look_again_ns = millisecond_ns;  // for memory that an abandoned call still uses
constexpr std::size_t spare_max = 64;             // pieces of memory of a session, before those that nobody uses are let go

// Large enough, and not much too large.
bool fits(std::uint64_t bytes, std::uint64_t capacity) noexcept { return bytes <= capacity && capacity <= 4 * std::max(bytes, page_bytes); }

template <class Pieces>
void drop_spare(Pieces& pieces) {
  if (pieces.size() >= spare_max) std::erase_if(pieces, [](const auto& each) { return each.use_count() == 1; });
}

}  // namespace

TaskService::TaskService(Limits limits, std::shared_ptr<mover::BufferCache> cache, std::function<bool(std::uint64_t)> room)
    : limits_(limits), cache_(std::move(cache)), room_(std::move(room)) {}

TaskService::~TaskService() = default;

void TaskService::on_channel_open(ChannelNumber channel, uid_t user) { channels_[channel].user = user; }

// Nobody waits any more. Its transfers have ended before.
void TaskService::on_channel_closed(ChannelNumber channel, Effects& effects) {
  each_task(channel, [&](Task& task) {
    if (task.state == Task::State::calling) effects.push_back(mover::CancelCallEffect{mover::token_of(Service::task, task.number)});
    if (task.state == Task::State::calling) --counters_.running;
    if (task.state < Task::State::calling) --counters_.waiting;
    ++counters_.failed;
    tasks_.erase(task.number);
  });
  std::erase_if(transfers_, [&](const auto& each) { return each.second.channel == channel; });
  std::erase_if(sessions_, [&](const auto& each) { return each.second->channel == channel; });
  channels_.erase(channel);
}

template <class Chosen>
void TaskService::each_task(ChannelNumber channel, Chosen chosen) {
  for (const auto& [number, session] : sessions_) {
    if (session->channel != channel) continue;
    for (const auto& task : session->tasks)
      if (task->state != Task::State::over) chosen(*task);
  }
}

Task* TaskService::find(std::uint64_t number) {
  const auto at = tasks_.find(number);
  return at != tasks_.end() ? at->second : nullptr;
}

Task* TaskService::find_ticket(ChannelNumber channel, std::uint64_t ticket) {
  Task* found = nullptr;
  each_task(channel, [&](Task& task) {
    if (task.ticket == ticket) found = &task;
  });
  return found;
}

std::uint64_t TaskService::begin_transfer(Transfer transfer) {
  const std::uint64_t number = next_transfer_++;
  transfers_.emplace(number, std::move(transfer));
  return number;
}

// ---- requests

void TaskService::on_request(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  if (Status served = serve(channel, request, now, effects); !served)
    effects.push_back(FailEffect{channel, request.ticket, wire::any_reply, std::move(served).error()});
  settle(now, effects);
}

Status TaskService::serve(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  switch (static_cast<EntryKind>(request.kind)) {
    case EntryKind::task_open: return open(channel, request, effects);
    case EntryKind::task_run: return run(channel, request, now, effects);
    case EntryKind::task_wait: return wait(channel, request, effects);
    case EntryKind::task_cancel: return cancel(channel, request, now, effects);
    case EntryKind::task_close: return close(channel, request, now, effects);
    default: return fail(Error::protocol, "request of kind {} is none of tasks", request.kind);
  }
}

Result<Session*> TaskService::own(ChannelNumber channel, std::uint64_t number) {
  const auto at = sessions_.find(number);
  if (at == sessions_.end() || at->second->channel != channel) return fail(Error::not_found, "this program has no session {} of tasks", number);
  return at->second.get();
}

Status TaskService::open(ChannelNumber channel, const channel::Entry& request, Effects& effects) {
  wire::TaskOpen asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  Channel& program = channels_.at(channel);
  if (program.sessions >= limits_.sessions_max)
    return fail(Error::too_large, "this program has {} sessions of tasks, which is the limit", program.sessions);
  ++program.sessions;
  auto session = std::make_unique<Session>();
  session->number = next_session_++;
  session->channel = channel;
  session->lane = asked.lane;
  session->lanes = asked.lanes;
  session->lines = asked.lines;
  effects.push_back(ReplyEffect{channel, request.ticket, wire::Done{session->number}});
  sessions_.emplace(session->number, std::move(session));
  return {};
}

Result<std::unique_ptr<Task>> TaskService::make_task(Session& session, std::uint64_t ticket, wire::TaskRun asked, TimeNs now) const {
  if (asked.line >= session.lines.length / wire::task_line_bytes)
    return fail(Error::protocol, "a task's line is {}, there are {}", asked.line, session.lines.length / wire::task_line_bytes);
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
    if (!names.insert(each.name).second) return fail(Error::exists, "{}: two inputs are called \"{}\"", task->name(), each.name);
    task->inputs.push_back({each.source, each.bytes, each.version, each.changed_from, each.changed_at, each.changed_bytes, std::string(each.name)});
  }
  names.clear();
  for (const wire::TaskOutput& each : asked.outputs) {
    if (!names.insert(each.name).second) return fail(Error::exists, "{}: two outputs are called \"{}\"", task->name(), each.name);
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
  Channel& program = channels_.at(channel);
  if (program.tasks >= limits_.tasks_max) return fail(Error::would_block, "{} tasks of this program are under way, which is the limit", program.tasks);
  OFP_ASSIGN(std::unique_ptr<Task> task, make_task(*session, request.ticket, std::move(asked), now));
  task->number = next_number_++;
  ++program.tasks;
  ++counters_.asked;
  ++counters_.waiting;
  tasks_.emplace(task->number, task.get());
  Task& asked_for = *session->tasks.emplace_back(std::move(task));
  session->dirty = true;
  next_ = std::min(next_, asked_for.deadline);
  // Those that have ended well are nothing to wait for.
  for (const std::uint64_t ticket : std::exchange(asked_for.after, {})) {
    if (const auto failed = program.failed.find(ticket); failed != program.failed.end()) {
      end_task(asked_for, fail(Error::cancelled, "{} comes after task {}, which failed: {}", asked_for.name(), ticket, failed->second), now, effects);
      return {};
    }
    if (ticket != request.ticket && find_ticket(channel, ticket) != nullptr) asked_for.after.push_back(ticket);
  }
  return {};
}

Status TaskService::wait(ChannelNumber channel, const channel::Entry& request, Effects& effects) {
  wire::TaskWait asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  Task* const task = find_ticket(channel, asked.ticket);
  if (task != nullptr && !task->pulled) task->who_waits.push_back(request.ticket);
  else effects.push_back(ReplyEffect{channel, request.ticket, wire::Done{0}});
  return {};
}

Status TaskService::cancel(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::TaskCancel asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  if (Task* const task = find_ticket(channel, asked.ticket)) cancel_task(*task, "its program", now, effects);
  return {};
}

Status TaskService::close(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::TaskClose asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  OFP_ASSIGN(Session* const session, own(channel, asked.session));
  for (const auto& task : session->tasks) {
    if (task->state == Task::State::pushing) end_task(*task, fail(Error::cancelled, "{}: its session was closed", task->name()), now, effects);
    else cancel_task(*task, "the end of its session", now, effects);
  }
  --channels_.at(channel).sessions;
  sessions_.erase(asked.session);
  effects.push_back(ReplyEffect{channel, request.ticket, wire::Done{0}});
  return {};
}

// What is being pushed goes on: the program's memory is being written to.
void TaskService::cancel_task(Task& task, const std::string& why, TimeNs now, Effects& effects) {
  if (task.state == Task::State::over || task.state == Task::State::pushing) return;
  if (task.state == Task::State::calling) effects.push_back(mover::CancelCallEffect{mover::token_of(Service::task, task.number)});
  ++counters_.cancelled;
  end_task(task, fail(Error::cancelled, "{} was cancelled by {}", task.name(), why), now, effects);
}

// ---- from step to step

void TaskService::settle(TimeNs now, Effects& effects) {
  for (bool any = true; std::exchange(any, false);) {
    for (const auto& [number, session] : sessions_) {
      if (!std::exchange(session->dirty, false)) continue;
      any = true;
      advance(*session, now, effects);
      std::erase_if(session->tasks, [](const auto& task) { return task->state == Task::State::over; });
    }
  }
}

void TaskService::advance(Session& session, TimeNs now, Effects& effects) {
  std::size_t ahead = 0;
  for (const auto& task : session.tasks) ahead += task->state >= Task::State::pulling && task->state <= Task::State::calling;
  const std::size_t ahead_max = session.is_ordered() ? limits_.ahead_max : limits_.side_by_side_max;
  bool all_begun = true, all_called = true;
  for (const auto& each : session.tasks) {
    Task& task = *each;
    if (task.state == Task::State::waiting && task.after.empty() && ahead < ahead_max && (all_begun || !session.is_ordered())) {
      const auto begun = begin_pulls(task, now, effects);
      if (!begun) end_task(task, tl::unexpected(begun.error()), now, effects);
      else if (*begun == Pulls::begun) ++ahead;
      else next_ = std::min(next_, now + look_again_ns);
    }
    if (task.state == Task::State::pulling)
      if (Status pulled = check_pulled(task, now, effects); !pulled) end_task(task, std::move(pulled), now, effects);
    if (task.state == Task::State::ready && (all_called || !session.is_ordered())) call(task, now, effects);
    all_begun = all_begun && task.state != Task::State::waiting;
    all_called = all_called && task.state >= Task::State::calling;
  }
}

void TaskService::enter(Task& task, Task::State state, TimeNs now) {
  TimeNs wire::TaskDone::*const took = task.state == Task::State::pulling   ? &wire::TaskDone::pulled_ns
                                       : task.state == Task::State::calling ? &wire::TaskDone::ran_ns
                                       : task.state == Task::State::pushing ? &wire::TaskDone::pushed_ns
                                                                            : &wire::TaskDone::queued_ns;
  TimeNs TaskCounters::*const sum = task.state == Task::State::pulling   ? &TaskCounters::pulling_ns
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
  if (task.state < Task::State::calling && state >= Task::State::calling) --counters_.waiting;
  if (task.state == Task::State::calling) --counters_.running;
  if (state == Task::State::calling) ++counters_.running;
  task.since = now;
  task.state = state;
}

MemoryPtr TaskService::spare_memory(const Session& session, std::uint64_t bytes) {
  const auto at = std::ranges::find_if(session.memory, [&](const MemoryPtr& each) { return each.use_count() == 1 && !each->made && fits(bytes, each->capacity()); });
  return at != session.memory.end() ? *at : nullptr;
}

Result<MemoryPtr> TaskService::take_memory(Session& session, std::uint64_t bytes) {
  MemoryPtr memory = spare_memory(session, bytes);
  if (!memory) {
    drop_spare(session.memory);
    if (!room_(bytes + counters_.target_bytes)) return fail(Error::no_memory, "there is no room for {} bytes of inputs", bytes);
    memory = std::make_shared<Memory>();
    memory->number = next_memory_++;
    OFP_ASSIGN(memory->buffer, cache_->take(std::max<std::uint64_t>(bytes, 1), channels_.at(session.channel).user));
    session.memory.push_back(memory);
  }
  memory->bytes = bytes;
  memory->state = Memory::State::filling;
  return memory;
}

Result<TargetPtr> TaskService::take_target(Session& session, std::uint64_t bytes) {
  const auto spare = std::ranges::find_if(session.targets, [&](const TargetPtr& each) { return each.use_count() == 1 && fits(bytes, each->capacity()); });
  if (spare != session.targets.end()) return *spare;
  drop_spare(session.targets);
  if (!room_(bytes + counters_.target_bytes)) return fail(Error::no_memory, "there is no room for {} bytes of outputs", bytes);
  OFP_ASSIGN(TargetPtr target, TargetMemory::make(next_memory_++, bytes));
  // Counted until it is gone, which may be later than its session: a worker that does not return has it.
  const auto count = [this, alive = std::weak_ptr<bool>(alive_), bytes = target->capacity(), held = target](TargetMemory*) mutable {
    if (alive.lock()) counters_.target_bytes -= bytes;
    held.reset();
  };
  counters_.target_bytes += target->capacity();
  TargetPtr counted(target.get(), count);
  session.targets.push_back(counted);
  return counted;
}

Result<TaskService::Pulls> TaskService::begin_pulls(Task& task, TimeNs now, Effects& effects) {
  Session& session = *task.session;
  std::vector<ResidentMemory::Found> found;
  std::uint64_t resident_bytes = session.resident.bytes();
  for (const Input& input : task.inputs) {
    auto& each = found.emplace_back();
    if (input.version != 0) each = session.resident.find(input.name, input.version, input.bytes, input.changed_from);
    if (each.need == ResidentMemory::Need::later) return Pulls::later;
    if (each.need == ResidentMemory::Need::nothing) continue;
    if (input.source.length == 0 && input.bytes != 0)
      return fail(Error::not_found, "{}: input \"{}\" is not here as version {}, and has no memory to be pulled from", task.name(), input.name, input.version);
    if (each.need != ResidentMemory::Need::whole) continue;
    if (input.version != 0) resident_bytes += input.bytes - session.resident.bytes_of(input.name);
  }
  if (resident_bytes > limits_.resident_bytes_max)
    return fail(Error::too_large, "{}: {} bytes of inputs would stay on the agent, at most {} may", task.name(), resident_bytes, limits_.resident_bytes_max);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i].need != ResidentMemory::Need::whole) continue;
    auto taken = take_memory(session, task.inputs[i].bytes);
    if (!taken) return fail(taken.error().code, "{}: {}", task.name(), taken.error().message);
    found[i].memory = std::move(*taken);
  }
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
    pieces.push_back({input.source.region, input.source.generation, input.source.offset + at, input.memory->buffer.data() + at, length});
    transfer.memory.push_back(input.memory);
    task.times.pulled_bytes += length;
    counters_.pulled_bytes += length;
  }
  enter(task, Task::State::pulling, now);
  if (pieces.empty()) return Pulls::begun;
  effects.push_back(mover::PullEffect{session.channel, mover::token_of(Service::task, begin_transfer(std::move(transfer))), std::move(pieces)});
  return Pulls::begun;
}

// Some of it may be another task's pull.
Status TaskService::check_pulled(Task& task, TimeNs now, Effects& effects) {
  for (const Input& input : task.inputs) {
    if (input.memory->state == Memory::State::filling) return {};
    if (input.memory->state == Memory::State::failed)
      return fail(input.memory->failure.code, "{}: input \"{}\": {}", task.name(), input.name, input.memory->failure.message);
  }
  enter(task, Task::State::ready, now);
  task.pulled = true;
  answer_waiters(task, effects);
  if (std::ranges::none_of(task.inputs, [](const Input& input) { return input.source.length != 0; })) return {};
  const Session& session = *task.session;
  const std::uint64_t number = begin_transfer({Transfer::Kind::told, session.channel, task.number, {}, task.ticket});
  const auto* const word = reinterpret_cast<const std::byte*>(&transfers_.at(number).word);
  effects.push_back(mover::PushEffect{session.channel, mover::token_of(Service::task, number),
                                      {{session.lines.region, session.lines.offset + task.line * wire::task_line_bytes, word, sizeof(std::uint64_t)}}, nullptr});
  return {};
}

void TaskService::call(Task& task, TimeNs now, Effects& effects) {
  Session& session = *task.session;
  auto asked = std::make_shared<plugin::Call>();
  asked->plugin = task.plugin;
  asked->function = task.function;
  asked->arguments = task.arguments;
  asked->deadline_ns = task.deadline;
  asked->output_bytes_max = 0;
  asked->session = session.number;
  asked->lanes = session.is_ordered() ? session.lanes : 0;
  asked->lane = session.is_ordered() ? session.lane : 0;
  asked->report = task.report = std::make_shared<plugin::CallReport>();
  for (Output& output : task.outputs) {
    asked->output_bytes_max += output.bytes_max;
    plugin::Room room;
    room.name = output.name;
    room.bytes = output.bytes_max;
    if (output.version == 0 && output.bytes_max != 0) {
      auto target = take_target(session, output.bytes_max);
      if (!target) return end_task(task, fail(target.error().code, "{}: {}", task.name(), target.error().message), now, effects);
      output.room = std::move(*target);
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
      given.fd = input.memory->fd();
      given.bytes = input.bytes;
      given.kept = input.memory->number;
      given.kept_bytes = input.memory->capacity();
    }
    asked->inputs.push_back(std::move(given));
  }
  enter(task, Task::State::calling, now);
  effects.push_back(mover::CallEffect{mover::token_of(Service::task, task.number), std::move(asked)});
}

// ---- back

void TaskService::on_called(std::uint64_t token, Result<plugin::Outputs> outcome, TimeNs now, Effects& effects) {
  Task* const task = find(mover::number_of(token));
  if (task == nullptr) return;  // cancelled
  OFP_ASSERT(task->state == Task::State::calling);
  std::vector<link::WritePiece> pieces;
  // A function that was asked to return at its deadline has most often failed for that reason.
  if (!outcome && outcome.error().code == Error::function_failed && task->deadline <= now)
    outcome = fail(Error::timeout, "its time was over: {}", outcome.error().message);
  Status taken = outcome ? take_outputs(*task, std::move(*outcome), pieces) : Status(tl::unexpected(std::move(outcome).error()));
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
    effects.push_back(mover::PushEffect{task->session->channel, mover::token_of(Service::task, number), std::move(pieces), nullptr});
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
    if (named == task.outputs.end()) return fail(Error::invalid, "{} has made an output \"{}\", which the task does not name", task.name(), made.name);
    if (made.bytes > named->bytes_max)
      return fail(Error::too_large, "{}: output \"{}\" has {} bytes, there is room for {}", task.name(), made.name, made.bytes, named->bytes_max);
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
    memory->number = next_memory_++;
    memory->made = std::move(made.memory);
    memory->bytes = made.bytes;
    memory->state = Memory::State::filled;
    kept.emplace_back(&*named, std::move(memory));
  }
  if (resident_bytes > limits_.resident_bytes_max)
    return fail(Error::too_large, "{}: {} bytes would stay on the agent, at most {} may", task.name(), resident_bytes, limits_.resident_bytes_max);
  for (auto& [output, memory] : kept) session.resident.keep(output->name, output->version, std::move(memory));
  return {};
}

void TaskService::on_transfer(std::uint64_t token, const Status& status, TimeNs now, Effects& effects) {
  const auto node = transfers_.extract(mover::number_of(token));
  if (!node) return;  // its session or its channel has ended
  const Transfer& transfer = node.mapped();
  Task* const task = find(transfer.task);
  if (transfer.kind == Transfer::Kind::pull) {
    for (const MemoryPtr& memory : transfer.memory) {
      memory->state = status ? Memory::State::filled : Memory::State::failed;
      if (!status) memory->failure = status.error();
    }
    // Another task may wait for it, also when the one that began it was cancelled.
    for (const auto& [number, session] : sessions_) {
      if (session->channel != transfer.channel) continue;
      session->dirty = true;
      if (!status)
        for (const MemoryPtr& memory : transfer.memory) session->resident.drop(memory);
    }
  } else if (transfer.kind == Transfer::Kind::push && task != nullptr) {
    if (status) for (const Output& output : task->outputs) counters_.pushed_bytes += output.target.length != 0 ? output.bytes : 0;
    end_task(*task, status ? Status{} : fail(status.error().code, "{}: outputs cannot be pushed: {}", task->name(), status.error().message), now, effects);
  }
  settle(now, effects);
}

void TaskService::answer_waiters(Task& task, Effects& effects) {
  for (const std::uint64_t ticket : std::exchange(task.who_waits, {})) effects.push_back(ReplyEffect{task.session->channel, ticket, wire::Done{0}});
}

// It is taken out of its session's list by settle().
void TaskService::end_task(Task& task, Status status, TimeNs now, Effects& effects) {
  Session& session = *task.session;
  enter(task, Task::State::over, now);
  tasks_.erase(task.number);
  session.dirty = true;
  Channel& program = channels_.at(session.channel);
  --program.tasks;
  answer_waiters(task, effects);
  if (status) {
    ++counters_.done;
    for (const Output& output : task.outputs) task.times.output_bytes.push_back(output.bytes);
    effects.push_back(ReplyEffect{session.channel, task.ticket, std::move(task.times)});
  } else {
    ++counters_.failed;
    program.failed.emplace(task.ticket, status.error().message);
    if (program.failed.size() > failed_max) program.failed.erase(program.failed.begin());
    effects.push_back(FailEffect{session.channel, task.ticket, wire::any_reply, status.error()});
  }
  each_task(session.channel, [&](Task& other) {
    if (std::erase(other.after, task.ticket) == 0) return;
    other.session->dirty = true;
    if (!status)
      end_task(other, fail(Error::cancelled, "{} comes after task {}, which failed: {}", other.name(), task.ticket, status.error().message), now, effects);
  });
}

// ---- time

void TaskService::on_time(TimeNs now, Effects& effects) {
  next_ = never;
  for (const auto& [number, session] : sessions_) {
    for (const auto& task : session->tasks) {
      if (task->state >= Task::State::calling) continue;  // whoever runs it counts
      if (task->deadline <= now) {
        end_task(*task, fail(Error::timeout, "{}: its time was over before a worker began with it", task->name()), now, effects);
      } else {
        next_ = std::min(next_, task->deadline);
        session->dirty = session->dirty || task->state == Task::State::waiting;
      }
    }
  }
  settle(now, effects);
}

TaskCounters TaskService::counters() const {
  TaskCounters all = counters_;
  all.sessions = sessions_.size();
  for (const auto& [number, session] : sessions_) all.resident_bytes += session->resident.bytes();
  return all;
}

}  // namespace offpath::task
