#include "link/held_events.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <utility>

namespace offpath::link {

bool HeldEvents::later(const Held& a, const Held& b) noexcept {
  if (a.due != b.due) return a.due > b.due;
  return a.rank != b.rank ? a.rank > b.rank : a.order > b.order;
}

void HeldEvents::hold(LinkEvent event, TimeNs due, std::uint64_t rank) {
  held_.push_back({due, rank, order_++, std::move(event)});
  std::push_heap(held_.begin(), held_.end(), later);
}

std::size_t HeldEvents::release(TimeNs now, std::span<LinkEvent> events) {
  std::size_t count = 0;
  for (; count < events.size() && !held_.empty() && held_.front().due <= now; ++count) {
    std::pop_heap(held_.begin(), held_.end(), later);
    events[count] = std::move(held_.back().event);
    held_.pop_back();
  }
  return count;
}

void HeldEvents::make_all_due(TimeNs now) noexcept {
  for (Held& held : held_) held.due = std::min(held.due, now);
  std::make_heap(held_.begin(), held_.end(), later);
}

TimeNs HeldEvents::next_due() const noexcept { return held_.empty() ? never : held_.front().due; }

DueFd::DueFd(int inner_event_fd) {
  if (inner_event_fd < 0) return;
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  Fd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!epoll || !timer) return;  // out of descriptors: the loop has to poll
  for (const int fd : {inner_event_fd, timer.get()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) return;
  }
  epoll_ = std::move(epoll);
  timer_ = std::move(timer);
}

void DueFd::arm(TimeNs due) noexcept {
  if (!epoll_ || due == armed_) return;
  armed_ = due;
  itimerspec when{};  // zero: disarmed
  if (due != never) {
    const TimeNs at = std::max<TimeNs>(due, 1);
    when.it_value = {at / second_ns, at % second_ns};
  }
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

}  // namespace offpath::link
