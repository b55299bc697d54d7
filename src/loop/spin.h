// How long a loop looks for more work before it sleeps: for a while after many rounds of work, for less after a few,
// and not at all while looking has been in vain. Time is an argument.
//
// Looking pays where more work comes sooner than a sleep and a wake take. Agents that share a core with others, or that
// have little to do, would spend most of their processor time on it. So after `vain_max` times in a row in which
// nothing came, the loop sleeps at once, until work comes so soon again that looking would have met it.
#pragma once

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace offpath::loop {

class Spin {
 public:
  static constexpr unsigned few_rounds = 16, vain_max = 8;
  static constexpr TimeNs after_few_ns = 100 * microsecond_ns;

  explicit Spin(TimeNs most_ns) noexcept : most_ns_(most_ns) {}

  // A round did something after which more is likely.
  void worked(TimeNs now) noexcept {
    if (std::exchange(was_idle_, false) && now - worked_at_ < window_ns()) vain_ = 0;
    is_due_ = true;
    worked_at_ = now;
    rounds_ = std::min(rounds_ + 1, few_rounds);
  }
  void found_nothing() noexcept { was_idle_ = true; }
  void slept() noexcept {
    if (std::exchange(is_due_, false)) vain_ = std::min(vain_ + 1, vain_max);
    was_idle_ = true;
    rounds_ = 0;
  }

  [[nodiscard]] TimeNs until() const noexcept { return worked_at_ + (vain_ < vain_max ? window_ns() : 0); }
  [[nodiscard]] TimeNs since() const noexcept { return worked_at_; }

 private:
  [[nodiscard]] TimeNs window_ns() const noexcept {
    return rounds_ < few_rounds ? std::min(most_ns_, after_few_ns) : most_ns_;
  }

  TimeNs most_ns_, worked_at_ = 0;
  unsigned rounds_ = 0;                     // that worked since the last sleep
  unsigned vain_ = 0;                       // times in a row in which nothing came before the loop slept
  bool was_idle_ = false, is_due_ = false;  // since the last work: a round found nothing; the loop has not slept
};

}  // namespace offpath::loop
