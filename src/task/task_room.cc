// Memory for tasks. A session reuses its pieces. If there is no room for a new one, unused pieces are released, and the
// task waits. Among one program's tasks the oldest gets room first.
#include <algorithm>
#include <utility>

#include "task/task_service.h"

namespace offpath::task {

using service::Effects;

namespace {

constexpr std::size_t spare_max = 64;  // pieces of memory of a session, before unused ones are released

// Large enough, but not much larger.
bool fits(std::uint64_t bytes, std::uint64_t capacity) noexcept {
  return bytes <= capacity && capacity <= 4 * std::max(bytes, page_bytes);
}

template <class Pieces>
void drop_spare(Pieces& pieces, std::size_t most) {
  if (pieces.size() >= most) std::erase_if(pieces, [](const auto& each) { return each.use_count() == 1; });
}

}  // namespace

bool TaskService::has_room(const Task& task, std::uint64_t bytes) const {
  const auto& waiting = channels_.at(task.session->channel).short_of_room;
  if (!waiting.empty() && *waiting.begin() < task.number) return false;
  return room_(bytes + counters_.target_bytes);
}

// Error::would_block: there is no room now.
Result<MemoryPtr> TaskService::take_memory(const Task& task, std::uint64_t bytes) {
  Session& session = *task.session;
  const auto spare = std::ranges::find_if(session.memory, [&](const MemoryPtr& each) {
    return each.use_count() == 1 && !each->made && fits(bytes, each->capacity());
  });
  MemoryPtr memory = spare != session.memory.end() ? *spare : nullptr;
  if (!memory) {
    drop_spare(session.memory, spare_max);
    if (!has_room(task, bytes)) return fail(Error::would_block, "there is no room for {} bytes of inputs", bytes);
    memory = std::make_shared<Memory>();
    memory->number = next_memory_++;
    OFP_ASSIGN(memory->buffer,
               cache_->take_file(std::max<std::uint64_t>(bytes, 1), channels_.at(session.channel).user));
    session.memory.push_back(memory);
  }
  memory->bytes = bytes;
  memory->state = Memory::State::filling;
  return memory;
}

Result<TargetPtr> TaskService::take_target(const Task& task, std::uint64_t bytes) {
  Session& session = *task.session;
  const auto spare = std::ranges::find_if(
      session.targets, [&](const TargetPtr& each) { return each.use_count() == 1 && fits(bytes, each->capacity()); });
  if (spare != session.targets.end()) return *spare;
  drop_spare(session.targets, spare_max);
  if (!has_room(task, bytes)) return fail(Error::would_block, "there is no room for {} bytes of outputs", bytes);
  OFP_ASSIGN(TargetPtr target, TargetMemory::make(next_memory_++, bytes));
  // Counted until it is freed, perhaps after the end of its session: a worker that does not return keeps it.
  const auto count = [this, alive = std::weak_ptr<bool>(alive_), bytes = target->capacity(),
                      held = target](TargetMemory*) mutable {
    if (alive.lock()) {
      counters_.target_bytes -= bytes;
      freed_ = true;
    }
    held.reset();
  };
  counters_.target_bytes += target->capacity();
  TargetPtr counted(target.get(), count);
  session.targets.push_back(counted);
  return counted;
}

Result<bool> TaskService::try_room(Task& task, std::vector<ResidentMemory::Found>& found) {
  const auto missing = [&](const Failure& why) -> Result<bool> {
    for (std::size_t i = 0; i < found.size(); ++i)
      if (found[i].need == ResidentMemory::Need::whole) found[i].memory.reset();
    for (Output& output : task.outputs) output.room.reset();
    if (why.code == Error::would_block) return false;
    return fail(why.code, "{}: {}", task.name(), why.message);
  };
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i].need != ResidentMemory::Need::whole) continue;
    auto taken = take_memory(task, task.inputs[i].bytes);
    if (!taken) return missing(taken.error());
    found[i].memory = std::move(*taken);
  }
  for (Output& output : task.outputs) {
    if (output.version != 0 || output.bytes_max == 0) continue;
    auto taken = take_target(task, output.bytes_max);
    if (!taken) return missing(taken.error());
    output.room = std::move(*taken);
  }
  return true;
}

// Takes all memory that a task needs, or none: then it returns false, and the task waits.
Result<bool> TaskService::take_room(Task& task, std::vector<ResidentMemory::Found>& found) {
  task.room_bytes = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    if (found[i].need == ResidentMemory::Need::whole) task.room_bytes += task.inputs[i].bytes;
  for (const Output& output : task.outputs)
    if (output.version == 0) task.room_bytes += output.bytes_max;
  if (memory_max_ && task.room_bytes > memory_max_())
    return fail(Error::too_large, "{} needs {} bytes of the agent's memory, which has {}", task.name(), task.room_bytes,
                memory_max_());
  OFP_ASSIGN(const bool at_once, try_room(task, found));
  if (at_once) return true;
  drop_spares();
  OFP_ASSIGN(const bool then, try_room(task, found));
  if (!then) drop_spares();  // a part of the memory is useless
  return then;
}

// Drops them in all sessions. Other tasks gain nothing: waiting tasks have looked before.
void TaskService::drop_spares() {
  const bool freed = freed_;
  for (const auto& [number, session] : sessions_) {
    drop_spare(session->memory, 0);
    drop_spare(session->targets, 0);
  }
  freed_ = freed;
}

// ---- tasks waiting for room

bool TaskService::waits_for_memory() const noexcept {
  return std::ranges::any_of(channels_, [](const auto& each) { return !each.second.short_of_room.empty(); });
}

std::uint64_t TaskService::memory_wanted() const {
  std::uint64_t oldest = UINT64_MAX;
  for (const auto& [number, program] : channels_)
    if (!program.short_of_room.empty()) oldest = std::min(oldest, *program.short_of_room.begin());
  const auto at = tasks_.find(oldest);
  return at == tasks_.end() ? 0 : at->second->room_bytes;
}

void TaskService::look_again_for_room() {
  for (const auto& [number, program] : channels_)
    for (const std::uint64_t task : program.short_of_room) tasks_.at(task)->session->dirty = true;
}

void TaskService::on_memory_freed(TimeNs now, Effects& effects) {
  freed_ = true;
  settle(now, effects);
}

}  // namespace offpath::task
