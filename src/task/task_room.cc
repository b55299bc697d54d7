#include "task/task_room.h"

#include <algorithm>
#include <utility>

namespace offpath::task {

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

bool TaskRoom::has_room(const Task& task, std::uint64_t bytes) const {
  const auto waiting = waiting_.find(task.session->channel);
  if (waiting != waiting_.end() && *waiting->second.begin() < task.number) return false;
  return room_(bytes + target_bytes_);
}

// Error::would_block: there is no room now.
Result<MemoryPtr> TaskRoom::take_memory(const Task& task, uid_t user, std::uint64_t bytes) {
  Pieces& pieces = pieces_[task.session->number];
  const auto spare = std::ranges::find_if(pieces.memory, [&](const MemoryPtr& each) {
    return each.use_count() == 1 && !each->made && fits(bytes, each->capacity());
  });
  MemoryPtr memory = spare != pieces.memory.end() ? *spare : nullptr;
  if (!memory) {
    drop_spare(pieces.memory, spare_max);
    if (!has_room(task, bytes)) return fail(Error::would_block, "there is no room for {} bytes of inputs", bytes);
    memory = std::make_shared<Memory>();
    memory->number = next_number_++;
    OFP_ASSIGN(memory->buffer, cache_->take_file(std::max<std::uint64_t>(bytes, 1), user));
    pieces.memory.push_back(memory);
  }
  memory->bytes = bytes;
  memory->state = Memory::State::filling;
  return memory;
}

Result<TargetPtr> TaskRoom::take_target(const Task& task, std::uint64_t bytes) {
  Pieces& pieces = pieces_[task.session->number];
  const auto spare = std::ranges::find_if(
      pieces.targets, [&](const TargetPtr& each) { return each.use_count() == 1 && fits(bytes, each->capacity()); });
  if (spare != pieces.targets.end()) return *spare;
  drop_spare(pieces.targets, spare_max);
  if (!has_room(task, bytes)) return fail(Error::would_block, "there is no room for {} bytes of outputs", bytes);
  OFP_ASSIGN(TargetPtr target, TargetMemory::make(next_number_++, bytes));
  // Counted until it is freed, perhaps after the end of its session: a worker that does not return keeps it.
  const auto count = [this, alive = std::weak_ptr<bool>(alive_), bytes = target->capacity(),
                      held = target](TargetMemory*) mutable {
    if (alive.lock()) {
      target_bytes_ -= bytes;
      freed_ = true;
    }
    held.reset();
  };
  target_bytes_ += target->capacity();
  TargetPtr counted(target.get(), count);
  pieces.targets.push_back(counted);
  return counted;
}

Result<bool> TaskRoom::try_all(Task& task, uid_t user, std::vector<ResidentMemory::Found>& found) {
  const auto missing = [&](const Failure& why) -> Result<bool> {
    for (std::size_t i = 0; i < found.size(); ++i)
      if (found[i].need == ResidentMemory::Need::whole) found[i].memory.reset();
    for (Output& output : task.outputs) output.room.reset();
    if (why.code == Error::would_block) return false;
    return fail(why.code, "{}: {}", task.name(), why.message);
  };
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i].need != ResidentMemory::Need::whole) continue;
    auto taken = take_memory(task, user, task.inputs[i].bytes);
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

Result<bool> TaskRoom::take(Task& task, uid_t user, std::vector<ResidentMemory::Found>& found) {
  task.room_bytes = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    if (found[i].need == ResidentMemory::Need::whole) task.room_bytes += task.inputs[i].bytes;
  for (const Output& output : task.outputs)
    if (output.version == 0) task.room_bytes += output.bytes_max;
  if (memory_max_ && task.room_bytes > memory_max_())
    return fail(Error::too_large, "{} needs {} bytes of the agent's memory, which has {}", task.name(), task.room_bytes,
                memory_max_());
  OFP_ASSIGN(const bool at_once, try_all(task, user, found));
  if (at_once) return true;
  drop_spares();
  OFP_ASSIGN(const bool then, try_all(task, user, found));
  if (!then) drop_spares();  // a part of the memory is useless
  return then;
}

// Drops them in all sessions. Other tasks gain nothing: waiting tasks have looked before.
void TaskRoom::drop_spares() {
  const bool freed = freed_;
  for (auto& [session, pieces] : pieces_) {
    drop_spare(pieces.memory, 0);
    drop_spare(pieces.targets, 0);
  }
  freed_ = freed;
}

// ---- tasks waiting for room

void TaskRoom::stop_waiting(const Task& task) {
  const auto at = waiting_.find(task.session->channel);
  if (at == waiting_.end()) return;
  at->second.erase(task.number);
  if (at->second.empty()) waiting_.erase(at);
}

bool TaskRoom::is_waiting(const Task& task) const {
  const auto at = waiting_.find(task.session->channel);
  return at != waiting_.end() && at->second.contains(task.number);
}

std::vector<std::uint64_t> TaskRoom::waiting() const {
  std::vector<std::uint64_t> all;
  for (const auto& [channel, numbers] : waiting_) all.insert(all.end(), numbers.begin(), numbers.end());
  return all;
}

std::uint64_t TaskRoom::oldest() const noexcept {
  std::uint64_t oldest = UINT64_MAX;
  for (const auto& [channel, numbers] : waiting_) oldest = std::min(oldest, *numbers.begin());
  return oldest;
}

}  // namespace offpath::task
