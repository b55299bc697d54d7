// The sleeping rule between threads. The sleeper writes its flag, fences, looks once more, and sleeps. A publisher
// publishes, fences, reads the flag, and writes to the eventfd if it is set. Both fences are sequentially consistent,
// so at least one side sees the other's store: no wake is lost, and an awake thread gets no system call.
#pragma once

#include <atomic>

#include "base/fd.h"
#include "base/status.h"

namespace offpath::loop {

class Waker {
 public:
  [[nodiscard]] static Result<Waker> make();
  Waker(Waker&& other) noexcept : event_(std::move(other.event_)) {}

  // ---- the sleeping thread
  void before_sleep() noexcept;  // then look once more at everything that may have been published
  void after_sleep() noexcept;   // also when it did not sleep after all
  [[nodiscard]] int fd() const noexcept { return event_.get(); }
  void clear() noexcept;  // when fd() is readable, or it stays so

  // ---- any thread, after it has published
  void wake() noexcept;

 private:
  explicit Waker(Fd event) noexcept : event_(std::move(event)) {}

  Fd event_;
  alignas(64) std::atomic<bool> asleep_{false};
};

}  // namespace offpath::loop
