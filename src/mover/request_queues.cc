#include "mover/request_queues.h"

namespace offpath::mover {

namespace {

// Memory of the agent that a waiting request takes.
std::uint64_t cost_of(const Operation& operation) noexcept { return 1024 + operation.request.size(); }

}  // namespace

void RequestQueues::wait_for_pull(Operation& operation) {
  Channel& channel = *operation.stream->channel;
  channel.waiting_bytes += cost_of(operation);
  waiting_bytes_ += cost_of(operation);
  channel.waiting.push_back(&operation);
}

Operation* RequestQueues::next_pull(Channel& channel) {
  if (channel.waiting.empty()) return nullptr;
  Operation* const next = channel.waiting.front();
  channel.waiting.pop_front();
  channel.waiting_bytes -= cost_of(*next);
  waiting_bytes_ -= cost_of(*next);
  return next;
}

void RequestQueues::wait_for_memory(Operation& operation) {
  operation.stream->channel->lacking_bytes += cost_of(operation);
  lacking_bytes_ += cost_of(operation);
  operation.stream->lacking.push_back(&operation);
}

Operation& RequestQueues::has_memory(Stream& stream) {
  Operation& first = *stream.lacking.front();
  stream.lacking.pop_front();
  stream.channel->lacking_bytes -= cost_of(first);
  lacking_bytes_ -= cost_of(first);
  wait_for_pull(first);
  return first;
}

void RequestQueues::forget(const Channel& channel) noexcept {
  waiting_bytes_ -= channel.waiting_bytes;
  lacking_bytes_ -= channel.lacking_bytes;
}

std::uint64_t RequestQueues::lacking_bytes_max() const noexcept {
  return options_.lacking_bytes_max / (lacking_bytes_ < options_.all_lacking_bytes_max ? 1 : 16);
}

bool RequestQueues::are_full(const Channel& channel) const noexcept {
  return channel.waiting_bytes >= options_.waiting_bytes_max || channel.lacking_bytes >= lacking_bytes_max();
}

}  // namespace offpath::mover
