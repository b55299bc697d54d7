// Whether a thread that finds nothing to report spins before it sleeps. Spinning pays if the event comes meanwhile: to
// wake a sleeping core takes longer than the agent takes to deliver the next request. It costs processor time if the
// event comes a little later, as the next batch of a stream does.
#pragma once

#include <algorithm>
#include <atomic>

#include "base/clock.h"

namespace offpath::sockets {

// Threads may use it at the same time: their notes are then approximate.
class ShortWaits {
 public:
  static constexpr TimeNs spin_ns = 20 * microsecond_ns;
  static constexpr TimeNs short_ns = 60 * microsecond_ns;  // of a sleep, its wake-up included

  [[nodiscard]] bool spins() const noexcept { return score_.load(std::memory_order_relaxed) >= score_to_spin; }
  // A thread has spun; `in_time`: the event came. Spins that are in vain one after the other become rare.
  void spun(bool in_time) noexcept {
    const int penalty = penalty_.load(std::memory_order_relaxed);
    add(in_time ? 1 : -penalty);
    penalty_.store(in_time ? penalty_min : std::min(2 * penalty, penalty_max), std::memory_order_relaxed);
  }
  void slept(TimeNs ns) noexcept {
    if (ns < short_ns)
      add(1);
    else if (const int score = score_.load(std::memory_order_relaxed); score > 0)
      add(-std::min(score, 2));
  }

 private:
  static constexpr int score_to_spin = 4, score_max = 8, penalty_min = 4, penalty_max = 32;
  void add(int points) noexcept {
    score_.store(std::min(score_.load(std::memory_order_relaxed) + points, score_max), std::memory_order_relaxed);
  }
  std::atomic<int> score_ = 0, penalty_ = penalty_min;
};

}  // namespace offpath::sockets
