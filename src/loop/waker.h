// A thread that sleeps by base/sleep_flag.h, on an eventfd: no wake is lost, and a thread that is awake costs those
// that wake it no system call.
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
  void before_sleep() noexcept;  // then look once more at everything that may have been published
  void after_sleep() noexcept;   // also when it did not sleep after all
  [[nodiscard]] int fd() const noexcept { return event_.get(); }
  void clear() noexcept;  // when fd() is readable, or it stays so

  // ---- any thread, after it has published
  void wake() noexcept;

 private:
  explicit Waker(Fd event) noexcept : event_(std::move(event)) {}

  Fd event_;
  alignas(64) std::uint64_t asleep_ = 0;  // a SleepFlag
};

}  // namespace offpath::loop
