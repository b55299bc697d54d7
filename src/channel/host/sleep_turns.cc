#include "channel/host/sleep_turns.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace offpath::channel {

bool SleepTurns::sleep(Lock& lock, link::HostLink& link, TimeNs deadline) {
  if (taken_) {
    follow(lock, deadline);
    return false;
  }
  taken_ = true;
  lock.unlock();
  link.wait(deadline);
  lock.lock();
  taken_ = false;
  next();
  return true;
}

// A futex rather than a condition variable: a signal ends the sleep.
void SleepTurns::follow(Lock& lock, TimeNs deadline) {
  const std::uint32_t turn = number();
  const timespec until{static_cast<time_t>(deadline / second_ns), static_cast<long>(deadline % second_ns)};
  ++followers_;
  lock.unlock();
  ::syscall(SYS_futex, &number_, FUTEX_WAIT_BITSET_PRIVATE, turn, deadline == never ? nullptr : &until, nullptr,
            FUTEX_BITSET_MATCH_ANY);  // absolute, by the monotonic clock
  lock.lock();
  --followers_;
}

void SleepTurns::next() noexcept {
  number_.fetch_add(1, std::memory_order_relaxed);
  if (followers_ == 0) return;  // an agent polls its channels to members all the time: no system call without followers
  ::syscall(SYS_futex, &number_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace offpath::channel
