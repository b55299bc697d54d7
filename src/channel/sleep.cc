// How a program's threads sleep: one of them on the link, the others until it has looked.
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <climits>

#include "channel/event_descriptor.h"
#include "channel/host_end.h"
#include "channel/interruption.h"

namespace offpath::channel {

Interruption& interruption() noexcept {
  thread_local Interruption own;
  return own;
}

// ---- the event descriptor

EventDescriptor::EventDescriptor(int link_fd) : link_fd_(link_fd) {
  Fd told(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Fd both(epoll_create1(EPOLL_CLOEXEC));
  if (!told || !both || link_fd < 0) return;
  for (const int fd : {link_fd, told.get()}) {
    epoll_event event{EPOLLIN, {}};
    if (epoll_ctl(both.get(), EPOLL_CTL_ADD, fd, &event) != 0) return;
  }
  told_ = std::move(told);
  both_ = std::move(both);
}

void EventDescriptor::tell() noexcept {
  if (!told_ || readable_) return;
  readable_ = eventfd_write(told_.get(), 1) == 0;
}

void EventDescriptor::clear() noexcept {
  if (!readable_) return;
  eventfd_t count = 0;
  (void)eventfd_read(told_.get(), &count);
  readable_ = false;
}

// ---- sleeping

// A futex rather than a condition variable: a signal ends the sleep.
void HostEnd::follow(Lock& lock, TimeNs deadline) {
  const std::uint32_t turn = turns_.load(std::memory_order_relaxed);
  const timespec until{static_cast<time_t>(deadline / second_ns), static_cast<long>(deadline % second_ns)};
  ++followers_;
  lock.unlock();
  ::syscall(SYS_futex, &turns_, FUTEX_WAIT_BITSET_PRIVATE, turn, deadline == never ? nullptr : &until, nullptr,
            FUTEX_BITSET_MATCH_ANY);  // absolute, by the monotonic clock
  lock.lock();
  --followers_;
}

void HostEnd::next_turn() noexcept {
  turns_.fetch_add(1, std::memory_order_relaxed);
  if (followers_ == 0) return;  // an agent polls its channels to members all the time: no system call without followers
  ::syscall(SYS_futex, &turns_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

Status HostEnd::sleep(Lock& lock, TimeNs deadline) {
  if (const Interruption asked = interruption(); asked.is_due != nullptr) {
    const std::uint32_t turn = turns_.load(std::memory_order_relaxed);
    lock.unlock();
    const bool due = asked.is_due(asked.user) != 0;
    lock.lock();
    OFP_TRY(usable());
    if (due) return fail(Error::cancelled, "the wait was interrupted");
    // Another thread may have taken the wake meanwhile.
    if (turn != turns_.load(std::memory_order_relaxed)) return {};
  }
  ++counters_.sleeps;
  if (leader_) {
    follow(lock, deadline);
    return usable();
  }
  leader_ = true;
  lock.unlock();
  link_->wait(deadline);
  lock.lock();
  leader_ = false;
  next_turn();
  OFP_TRY(usable());
  // A poller of the event descriptor may have asked for the wake that is taken here.
  if (watched_) events_.tell();
  return look();
}

Status HostEnd::poll() {
  {
    const Lock lock(mutex_);
    events_.clear();
    watched_ = !armed_.empty();
  }
  return look_beside(false);
}

Status HostEnd::poll_beside() { return look_beside(true); }

Status HostEnd::look_beside(bool tells) {
  const Lock lock(mutex_);
  OFP_TRY(usable());
  if (tells && watched_) events_.tell();
  if (!leader_) {
    next_turn();
    OFP_TRY(look());
  }
  return drain_replies();
}

}  // namespace offpath::channel
