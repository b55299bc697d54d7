#include "loop/waker.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>

#include "base/sleep_flag.h"

namespace offpath::loop {

Result<Waker> Waker::make() {
  Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return fail_errno(errno, "eventfd");
  return Waker(std::move(event));
}

void Waker::before_sleep() noexcept { SleepFlag(asleep_).set(); }

void Waker::after_sleep() noexcept { SleepFlag(asleep_).clear(); }

void Waker::clear() noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] auto ignored = read(event_.get(), &count, sizeof count);
}

void Waker::wake() noexcept {
  fence_before_look();
  if (!SleepFlag(asleep_).take()) return;
  std::uint64_t one = 1;
  [[maybe_unused]] auto ignored = write(event_.get(), &one, sizeof one);
}

}  // namespace offpath::loop
