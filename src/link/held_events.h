// Events that a link's decorator delays, and the descriptor that a sleeping loop waits on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "link/link.h"

namespace offpath::link {

class HeldEvents {
 public:
  // Events of one due time come out by `rank`, then in the order held.
  void hold(LinkEvent event, TimeNs due, std::uint64_t rank = 0);
  // The events due, earliest first; at most events.size().
  std::size_t release(TimeNs now, std::span<LinkEvent> events);
  void make_all_due(TimeNs now) noexcept;  // in the order in which they would have been due
  [[nodiscard]] TimeNs next_due() const noexcept;

 private:
  struct Held {
    TimeNs due;
    std::uint64_t rank;
    std::uint64_t order;
    LinkEvent event;
  };
  static bool later(const Held& a, const Held& b) noexcept;
  std::vector<Held> held_;  // a heap, the next one first
  std::uint64_t order_ = 0;
};

// Readable when the inner link's descriptor is, or at a point of real time. If the inner link has no descriptor (it
// runs in virtual time, or has to be polled), this has none either.
class DueFd {
 public:
  explicit DueFd(int inner_event_fd);
  [[nodiscard]] int fd() const noexcept { return epoll_.get(); }
  void arm(TimeNs due) noexcept;  // never: only the inner descriptor counts

 private:
  Fd epoll_, timer_;
  TimeNs armed_ = never;
};

}  // namespace offpath::link
