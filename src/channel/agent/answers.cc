#include "channel/agent/answers.h"

#include <algorithm>
#include <utility>

namespace offpath::channel {

Answers::Answers(std::byte* mapped, std::uint32_t slots, CompletionLines& lines)
    : lines_(lines),
      mirror_(mapped != nullptr ? nullptr : std::make_unique_for_overwrite<std::byte[]>(slots * wire::slot_bytes)),
      ring_(mapped != nullptr ? mapped : mirror_.get(), slots) {}

void Answers::add(wire::ReplyKind kind, std::uint64_t ticket, Bytes payload, std::uint32_t failed_stream) {
  // The slot has the lower half of the ticket. Any number of requests may have been posted since the reply's own.
  std::vector<std::byte> bytes(wire::reply_head_bytes);
  store(bytes.data(), static_cast<std::uint32_t>(ticket >> 32));
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  answers_.push_back({kind, ticket, std::move(bytes), failed_stream});
  if (lines_.has(failed_stream)) lines_.hold_back(failed_stream);
}

Result<bool> Answers::compose(std::uint64_t head) {
  if (head > ring_.position())
    return fail(Error::protocol, "the reply ring's head is {}, its tail {}", head, ring_.position());
  bool wrote = false;
  while (!answers_.empty()) {
    const Answer& answer = answers_.front();
    const std::uint64_t all = wire::slots_for(answer.payload.size()), left = all - slots_written_;
    const std::uint64_t free = ring_.slots() - ring_.used(head);
    if (free == 0 || (left > free && all <= wire::entry_slots_max(ring_.slots()))) break;
    const std::uint64_t count = std::min(left, free);
    ring_.write(static_cast<std::uint8_t>(answer.kind), answer.ticket, answer.payload, slots_written_, count);
    slots_written_ += count;
    wrote = true;
    if (count < left) break;
    if (lines_.has(answer.failed_stream)) lines_.release(answer.failed_stream);  // written after the ring
    answers_.pop_front();
    slots_written_ = 0;
  }
  return wrote;
}

}  // namespace offpath::channel
