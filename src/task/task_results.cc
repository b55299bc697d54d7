// Results of workers and links, and the end of tasks.
#include <algorithm>
#include <utility>

#include "task/task_service.h"
#include "wire/messages/replies.h"

namespace offpath::task {

using service::Effects;
using service::FailEffect;
using service::ReplyEffect;
using service::ServiceId;

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
    memory->number = next_memory_++;
    memory->made = std::move(made.memory);
    memory->bytes = made.bytes;
    memory->state = Memory::State::filled;
    kept.emplace_back(&*named, std::move(memory));
  }
  if (resident_bytes > limits_.resident_bytes_max)
    return fail(Error::too_large, "{}: {} bytes would stay on the agent, at most {} may", task.name(), resident_bytes,
                limits_.resident_bytes_max);
  for (auto& [output, memory] : kept) session.resident.keep(output->name, output->version, std::move(memory));
  return {};
}

void TaskService::on_transfer(std::uint64_t token, const Status& status, TimeNs now, Effects& effects) {
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
    end_one(task, status, now, effects);
    const Task::Reason reason =
        status ? Task::Reason{} : task.because.value_or(Task::Reason{task.ticket, status.error().message});
    for (const std::uint64_t number : std::exchange(task.before, {})) {
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
  return fail(Error::cancelled, "{} comes after task {}, which failed: {}", task.name(), task.because->ticket,
              task.because->why);
}

// settle() removes it from its session's list.
void TaskService::end_one(Task& task, const Status& status, TimeNs now, Effects& effects) {
  Session& session = *task.session;
  enter(task, Task::State::over, now);
  tasks_.erase(task.number);
  session.dirty = freed_ = true;
  Channel& program = channels_.at(session.channel);
  program.by_ticket.erase(task.ticket);
  --program.tasks;
  answer_waiters(task, effects);
  if (status) {
    ++counters_.done;
    for (const Output& output : task.outputs) task.times.output_bytes.push_back(output.bytes);
    effects.push_back(ReplyEffect{session.channel, task.ticket, std::move(task.times)});
  } else {
    ++counters_.failed;
    program.failed.emplace(task.ticket, task.because.value_or(Task::Reason{task.ticket, status.error().message}));
    if (program.failed.size() > failed_max) program.failed.erase(program.failed.begin());
    effects.push_back(FailEffect{session.channel, task.ticket, wire::any_reply, status.error()});
  }
}

}  // namespace offpath::task
