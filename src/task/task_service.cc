#include "task/task_service.h"

#include <algorithm>
#include <utility>

namespace offpath::task {

using service::ChannelNumber;
using service::Effects;
using service::ServiceId;

TaskService::TaskService(Limits limits, std::shared_ptr<service::BufferCache> cache,
                         std::function<bool(std::uint64_t)> room)
    : limits_(limits),
      user_plugins_(limits.user_plugins),
      cache_(std::move(cache)),
      room_(std::move(room)),
      messages_(limits.messages, cache_, room_) {}

TaskService::~TaskService() = default;

void TaskService::on_channel_open(ChannelNumber channel, uid_t user, std::optional<gid_t> group) {
  channels_[channel].user = user;
  channels_[channel].group = group;
}

// No request waits any more. Its transfers have ended before.
void TaskService::on_channel_closed(ChannelNumber channel, TimeNs now, Effects& effects) {
  for (const auto& [ticket, task] : channels_[channel].by_ticket) {
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
    if (session->channel == channel) messages_.close(number, now, effects);
  std::erase_if(sessions_, [&](const auto& each) { return each.second->channel == channel; });
  channels_.erase(channel);
  on_memory_freed(now, effects);
}

Task* TaskService::find(std::uint64_t number) {
  const auto at = tasks_.find(number);
  return at != tasks_.end() ? at->second : nullptr;
}

Task* TaskService::find_ticket(ChannelNumber channel, std::uint64_t ticket) {
  const auto& tasks = channels_.at(channel).by_ticket;
  const auto at = tasks.find(ticket);
  return at != tasks.end() ? at->second : nullptr;
}

std::uint64_t TaskService::begin_transfer(Transfer transfer) {
  const std::uint64_t number = next_transfer_++;
  transfers_.emplace(number, std::move(transfer));
  return number;
}

TimeNs TaskService::next_deadline() const noexcept {
  if (freed_ && waits_for_memory()) return 0;
  return deadlines_.empty() ? look_again_ : std::min(look_again_, deadlines_.begin()->first);
}

void TaskService::on_time(TimeNs now, Effects& effects) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    Task& task = *tasks_.at(deadlines_.begin()->second);
    const bool no_room = channels_.at(task.session->channel).short_of_room.contains(task.number);
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

TaskCounters TaskService::counters() const {
  TaskCounters all = counters_;
  all.sessions = sessions_.size();
  for (const auto& [number, session] : sessions_) all.resident_bytes += session->resident.bytes();
  return all;
}

}  // namespace offpath::task
