// Events of an agent's end that wait for poll: a ring that grows to its bound and keeps its size, so that a warm link
// allocates nothing.
#pragma once

#include <vector>

#include "link/link.h"

namespace offpath::link {

class EventQueue {
 public:
  // Posted operations, and received wakes and offers, between two polls; exceeding it is a bug of this process.
  static constexpr std::size_t events_max = 2 * AgentLink::operations_max;

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

  // The next free place, its `kind` and `token` set, everything else empty.
  LinkEvent& push(LinkEvent::Kind kind, std::uint64_t token) {
    if (count_ == ring_.size()) grow();
    LinkEvent& event = ring_[(first_ + count_++) & (ring_.size() - 1)];
    event.kind = kind;
    event.token = token;
    return event;
  }

  std::size_t take(std::span<LinkEvent> events) noexcept {
    std::size_t taken = 0;
    for (; taken < events.size() && count_ > 0; ++taken, --count_) {
      LinkEvent& event = ring_[first_];
      first_ = (first_ + 1) & (ring_.size() - 1);
      events[taken].kind = event.kind;
      events[taken].token = event.token;
      events[taken].status = std::move(event.status);
      if (!event.status) event.status = {};
      events[taken].fd = std::move(event.fd);
    }
    return taken;
  }

 private:
  void grow() {
    OFP_ASSERT(ring_.size() < events_max);
    std::vector<LinkEvent> larger(ring_.empty() ? 16 : ring_.size() * 2);
    const std::size_t count = take(larger);
    ring_ = std::move(larger);
    first_ = 0;
    count_ = count;
  }

  std::vector<LinkEvent> ring_;
  std::size_t first_ = 0, count_ = 0;
};

}  // namespace offpath::link
