// Which of a program's threads sleeps on the link: one of them does. The others sleep until it has looked, or any other
// thread has. Otherwise one thread could take the wake of another.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/clock.h"
#include "link/link.h"

namespace offpath::channel {

// All calls are under the channel's lock, which sleep() releases while it sleeps.
class SleepTurns {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // Sleeps until the deadline at most; it may return early. True: this thread slept on the link, and has to look at it.
  [[nodiscard]] bool sleep(Lock& lock, link::HostLink& link, TimeNs deadline);
  // A thread sleeps on the link: it will look.
  [[nodiscard]] bool is_taken() const noexcept { return taken_; }
  // After a look at the link, or before one: the threads that sleep behind another one return.
  void next() noexcept;
  // Grows with each of them.
  [[nodiscard]] std::uint32_t number() const noexcept { return number_.load(std::memory_order_relaxed); }

 private:
  void follow(Lock& lock, TimeNs deadline);

  std::atomic<std::uint32_t> number_ = 0;  // the threads that follow sleep on it
  unsigned followers_ = 0;                 // threads that sleep on it, or are about to
  bool taken_ = false;
};

}  // namespace offpath::channel
