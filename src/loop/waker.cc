#include "loop/waker.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>

namespace offpath::loop {

Result<Waker> Waker::make() {
  Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return fail_errno(errno, "eventfd");
  return Waker(std::move(event));
}

void Waker::before_sleep() noexcept {
  asleep_.store(true, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// A thread that took the flag earlier may write after this, which ends one later sleep early.
void Waker::after_sleep() noexcept { asleep_.store(false, std::memory_order_relaxed); }

void Waker::clear() noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] auto ignored = read(event_.get(), &count, sizeof count);
}

void Waker::wake() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!asleep_.load(std::memory_order_relaxed) || !asleep_.exchange(false, std::memory_order_relaxed)) return;
  std::uint64_t one = 1;
  [[maybe_unused]] auto ignored = write(event_.get(), &one, sizeof one);
}

}  // namespace offpath::loop
