// Predicts when a stream's next post comes from the times of its earlier ones, so that a sleeping agent can be awake by
// then. Takes the time as an argument, allocates nothing, and does bounded work.
//
// A beat is the first post after a pause of `interval_min_ns`. The next interval is predicted from those one, two,
// three or four beats ago: a simulation that rebuilds its neighbour lists at every fourth output has a rhythm of four.
// Each of these lags is judged by the recent intervals that it would have predicted well enough. Irregular posts fail
// this test, so nothing is expected of them and no time is spent.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace offpath::channel {

class Rhythm {
 public:
  static constexpr TimeNs interval_min_ns = millisecond_ns;
  static constexpr TimeNs interval_max_ns = 10 * second_ns;  // a longer pause ends a rhythm
  static constexpr TimeNs window_max_ns = 5 * millisecond_ns;
  struct Window {
    TimeNs from = never, until = never;
  };

  // True if it is a beat: expected() has changed.
  bool posted(TimeNs now) noexcept {
    const TimeNs pause = now - posted_at_;
    posted_at_ = now;
    if (has_beat_ && pause < interval_min_ns) return false;
    const TimeNs interval = now - beat_at_;
    beat_at_ = now;
    if (!std::exchange(has_beat_, true)) return true;
    if (interval > interval_max_ns) {
      count_ = 0;
    } else {
      if (count_ == intervals_max) std::shift_left(intervals_.begin(), intervals_.end(), 1);
      count_ = std::min(count_ + 1, intervals_max);
      intervals_[count_ - 1] = interval;
    }
    return true;
  }

  // When the next beat is expected. The window is at most `percent` of the expected interval. None: posts are
  // irregular, or there were too few.
  [[nodiscard]] std::optional<Window> expected(unsigned percent) const noexcept {
    Judged best;
    std::size_t best_lag = 0;
    for (std::size_t lag = 1; lag <= lag_max; ++lag) {
      const Judged judged = judge(lag, percent);
      if (judged.tried < tried_min || 2 * judged.hits < judged.tried) continue;
      // A longer lag has to be better, because it learns more slowly.
      if (best_lag != 0 && judged.hits * best.tried <= best.hits * judged.tried) continue;
      best = judged;
      best_lag = lag;
    }
    if (best_lag == 0) return std::nullopt;
    const TimeNs interval = predicted(count_, best_lag);
    const TimeNs half = std::min(tolerance(interval, percent), best.worst_hit_ns * 5 / 4 + spread_min_ns);
    return Window{beat_at_ + interval - half - lead(interval, percent), beat_at_ + interval + half};
  }

  [[nodiscard]] TimeNs posted_at() const noexcept { return posted_at_; }

 private:
  static constexpr std::size_t intervals_max = 16, lag_max = 4, judged_max = 8, tried_min = 3;
  static constexpr TimeNs spread_min_ns = 20 * microsecond_ns;
  static constexpr TimeNs lead_max_ns = 500 * microsecond_ns;
  struct Judged {
    std::size_t tried = 0, hits = 0;
    TimeNs worst_hit_ns = 0;
  };

  static TimeNs window(TimeNs interval, unsigned percent) noexcept {
    return std::min(interval * static_cast<TimeNs>(percent) / 100, window_max_ns);
  }
  // A timer is late, and a post that needed a wake was seen late: the window begins earlier than the spread asks for.
  static TimeNs lead(TimeNs interval, unsigned percent) noexcept {
    return std::min(window(interval, percent) / 4, lead_max_ns);
  }
  static TimeNs tolerance(TimeNs interval, unsigned percent) noexcept {
    return (window(interval, percent) - lead(interval, percent)) / 2;
  }

  // The length of the interval at `index`: the median of at most three earlier ones in the same place of the rhythm,
  // which ignores one that was disturbed.
  [[nodiscard]] TimeNs predicted(std::size_t index, std::size_t lag) const noexcept {
    const TimeNs first = intervals_[index - lag];
    if (index < 2 * lag) return first;
    const TimeNs second = intervals_[index - 2 * lag];
    if (index < 3 * lag) return first + (second - first) / 2;
    const TimeNs third = intervals_[index - 3 * lag];
    return std::max(std::min(first, second), std::min(std::max(first, second), third));
  }

  [[nodiscard]] Judged judge(std::size_t lag, unsigned percent) const noexcept {
    Judged judged;
    for (std::size_t index = std::max(lag, count_ - std::min(count_, judged_max)); index < count_; ++index) {
      const TimeNs interval = predicted(index, lag), error = std::abs(intervals_[index] - interval);
      ++judged.tried;
      if (error > tolerance(interval, percent)) continue;
      ++judged.hits;
      judged.worst_hit_ns = std::max(judged.worst_hit_ns, error);
    }
    return judged;
  }

  std::array<TimeNs, intervals_max> intervals_{};  // the oldest first
  std::size_t count_ = 0;
  TimeNs posted_at_ = 0, beat_at_ = 0;
  bool has_beat_ = false;
};

}  // namespace offpath::channel
