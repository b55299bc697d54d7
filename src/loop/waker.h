// Wakes a thread that sleeps by base/sleep_flag.h, with an eventfd: no wake is lost, and waking a thread that is awake
// takes no system call.
#pragma once

#include <cstdint>

#include "base/fd.h"
#include "base/status.h"

namespace offpath::loop {

class Waker {
 public:
  [[nodiscard]] static Result<Waker> make();
  Waker(Waker&& other) noexcept : event_(std::move(other.event_)) {}

  // ---- the sleeping thread
  void before_sleep() noexcept;  // afterwards look once more at everything that may have been published
  void after_sleep() noexcept;   // also if it did not sleep
  [[nodiscard]] int fd() const noexcept { return event_.get(); }
  void clear() noexcept;  // when fd() is readable; otherwise it stays readable

  // ---- any thread, after it has published
  void wake() noexcept;

 private:
  explicit Waker(Fd event) noexcept : event_(std::move(event)) {}

  Fd event_;
  alignas(64) std::uint64_t asleep_ = 0;  // a SleepFlag
};

}  // namespace offpath::loop
