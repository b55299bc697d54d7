#include "host/tasks/messages_here.h"

#include <chrono>
#include <cstring>

#include "wire/messages/function_outputs.h"
#include "wire/messages/lane_messages.h"

namespace offpath::host {

Status MessagesHere::check(std::uint32_t own, std::uint32_t lanes, std::uint32_t lane) const {
  if (!has_team_)
    return fail(
        Error::unsupported,
        "the session of this task has no team: its program has to name one when it opens it (ofp_tasks_options.team)");
  if (lane >= lanes) return fail(Error::invalid, "lane {}: the team has {} lanes", lane, lanes);
  if (lane != own)
    return fail(Error::unsupported,
                "this program runs its functions itself, without an agent: lane {} can reach only itself, not lane {}",
                own, lane);
  return {};
}

Status MessagesHere::send(std::uint32_t own, std::uint32_t lanes, std::uint32_t lane, std::uint32_t tag,
                          Bytes message) {
  OFP_TRY(check(own, lanes, lane));
  if (message.size() > wire::message_bytes_max)
    return fail(Error::too_large, "a message of {} bytes to lane {}, at most {} are allowed: send it in parts",
                message.size(), lane, wire::message_bytes_max);
  const std::lock_guard lock(mutex_);
  messages_[tag].emplace_back(message.begin(), message.end());
  sent_.notify_all();
  return {};
}

Status MessagesHere::receive(std::uint32_t own, std::uint32_t lanes, std::uint32_t lane, std::uint32_t tag,
                             MutableBytes into, TimeNs deadline, std::uint64_t& bytes) {
  bytes = 0;
  OFP_TRY(check(own, lanes, lane));
  std::unique_lock lock(mutex_);
  const auto is_there = [&] { return messages_.contains(tag); };
  if (!is_there() && deadline == never)
    return fail(Error::unsupported,
                "nothing was sent to lane {} under tag {}, and without an agent and a time limit of the task this wait "
                "would not end",
                lane, tag);
  if (!is_there() && !sent_.wait_for(lock, std::chrono::nanoseconds(wire::time_left(deadline)), is_there))
    return fail(Error::timeout, "nothing had come from lane {} under tag {}", lane, tag);
  const auto queue = messages_.find(tag);
  std::vector<std::byte>& message = queue->second.front();
  bytes = message.size();
  if (bytes > into.size())
    return fail(Error::too_large, "the message has {} bytes, there is room for {}", bytes, into.size());
  if (bytes != 0) std::memcpy(into.data(), message.data(), bytes);
  queue->second.pop_front();
  if (queue->second.empty()) messages_.erase(queue);
  return {};
}

}  // namespace offpath::host
