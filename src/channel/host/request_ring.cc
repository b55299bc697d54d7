#include "channel/host/request_ring.h"

#include <cstring>
#include <vector>

namespace offpath::channel {

using wire::ChannelLayout;
using wire::EntryKind;

Status RequestRing::offer_outside(TimeNs now) {
  OFP_TRY(link_.offer_outside());
  outside_offered_at_ = now;
  return {};
}

void RequestRing::withdraw_outside(TimeNs before) {
  if (outside_offered_at_ >= before || words_.request_head() < outside_end_) return;
  outside_offered_at_ = never;
  link_.withdraw_outside();
}

inline std::uint64_t RequestRing::write(EntryKind kind, Bytes payload, bool alone) {
  if (alone) [[unlikely]]
    std::memcpy(outside_, payload.data(), payload.size());
  // A slot may be seen before the tail: the program's writes to its arrays come before the slot.
  std::atomic_thread_fence(std::memory_order_release);
  if (alone) [[unlikely]] {
    ring_.write_outside(static_cast<std::uint8_t>(kind), ++ticket_,
                        {static_cast<std::uint32_t>(payload.size()), crc32c(payload)});
    outside_end_ = ring_.position();
  } else {
    ring_.write(static_cast<std::uint8_t>(kind), ++ticket_, payload);
  }
  words_.set_request_tail(ring_.position());
  return ticket_;
}

std::uint64_t RequestRing::publish(EntryKind kind, Bytes payload) {
  const bool alone = is_outside(payload.size());
  const std::uint64_t ticket = write(kind, payload, alone);
  fence_before_look();
  if (words_.agent_sleeps()) [[unlikely]]
    wake_agent();
  // For the next one, which is often alike: the lines arrive while the program works.
  if (!alone) ring_.prefetch(payload.size());
  return ticket;
}

std::uint64_t RequestRing::publish_without_wake(EntryKind kind, Bytes payload) {
  return write(kind, payload, is_outside(payload.size()));
}

// An agent that would have to read the ring over the link gets the oldest requests with the wake, once: posts that
// follow before it has taken them only wake.
void RequestRing::wake_agent() {
  ++wakes_;
  const std::uint64_t head = words_.request_head(), tail = ring_.position();
  if (link_.traits().mapped || head < sent_until_) return link_.wake();
  sent_until_ = tail;
  const std::uint64_t count = std::min(tail - std::min(head, tail), wire::sent_requests_max);
  std::vector<std::byte> requests(sizeof(wire::SentRequests) + count * wire::slot_bytes);
  store(requests.data(), wire::SentRequests{head, tail, words_.reply_head()});
  for (std::uint64_t i = 0; i < count; ++i)
    std::memcpy(requests.data() + sizeof(wire::SentRequests) + i * wire::slot_bytes,
                memory_ + ChannelLayout::request_ring + ((head + i) & (ring_.slots() - 1)) * wire::slot_bytes,
                wire::slot_bytes);
  link_.wake_with(requests);
}

}  // namespace offpath::channel
