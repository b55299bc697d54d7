// Keeps an agent awake when a program is about to post, so that the post need not wake it. See rhythm.h for when that
// is. An agent looks out for one short window after each beat, and for at most a share of one core in total.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "channel/rhythm.h"

namespace offpath::channel {

struct LookCounters {
  std::uint64_t look_outs = 0;     // windows in which an agent was awake for a post
  std::uint64_t wakes_spared = 0;  // posts that came while it was
  TimeNs looking_ns = 0;
};

// The time that all channels of an agent may look out, as a share of the time that passes.
class LookBudget {
 public:
  explicit LookBudget(unsigned percent) noexcept : percent_(percent) {}
  [[nodiscard]] unsigned percent() const noexcept { return percent_; }

  // False: less than this is left, and nothing is taken.
  [[nodiscard]] bool take(TimeNs length, TimeNs now) noexcept {
    if (now > refilled_at_) {
      const TimeNs passed = std::min(now - refilled_at_, second_ns);  // one second is enough to fill it
      left_ = std::min(left_ + passed * static_cast<TimeNs>(percent_) / 100, left_max_ns);
      refilled_at_ = now;
    }
    if (length > left_) return false;
    left_ -= length;
    return true;
  }
  void give_back(TimeNs length) noexcept { left_ = std::min(left_ + length, left_max_ns); }

  LookCounters counters;

 private:
  static constexpr TimeNs left_max_ns = 2 * Rhythm::window_max_ns;

  unsigned percent_;
  TimeNs left_ = 0, refilled_at_ = 0;
};

// The look-out for one channel. It follows the streams that posted last; a program with many streams mostly posts them
// together.
class LookOut {
 public:
  // `budget` may be null: it never looks out.
  explicit LookOut(LookBudget* budget) noexcept
      : budget_(budget != nullptr && budget->percent() > 0 ? budget : nullptr) {}

  void posted(std::uint32_t stream, TimeNs now) {
    if (budget_ == nullptr) return;
    auto row = std::ranges::find(rows_, stream, &Row::stream);
    if (row == rows_.end() && rows_.size() < rows_max) {
      row = rows_.insert(row, {.stream = stream});
    } else if (row == rows_.end()) {
      row = std::ranges::min_element(rows_, {}, [](const Row& each) { return each.rhythm.posted_at(); });
      *row = {.stream = stream};
    }
    if (!row->rhythm.posted(now)) return;
    row->window = row->rhythm.expected(budget_->percent()).value_or(Rhythm::Window{});
    find_next();
  }

  // When begin() is due.
  [[nodiscard]] TimeNs next() const noexcept { return next_; }
  // True if it looks out from now on. The windows that have begun are used up, whether it does or not.
  bool begin(TimeNs now) noexcept {
    TimeNs until = 0;
    for (Row& row : rows_) {
      if (row.window.from > now) continue;
      until = std::max(until, row.window.until);
      row.window = {};
    }
    find_next();
    const TimeNs paid_until = std::max(until_, now);
    if (until <= paid_until || !budget_->take(until - paid_until, now)) return false;
    if (until_ == 0) {
      since_ = now;
      ++budget_->counters.look_outs;
    }
    until_ = until;
    return true;
  }
  [[nodiscard]] bool looks_at(TimeNs now) const noexcept { return now < until_; }
  // `spared`: because of a post, which would have had to wake the agent otherwise.
  void end(TimeNs now, bool spared) noexcept {
    if (until_ == 0) return;
    if (now < until_) budget_->give_back(until_ - now);
    budget_->counters.looking_ns += std::min(now, until_) - since_;
    budget_->counters.wakes_spared += spared ? 1 : 0;
    until_ = 0;
  }

 private:
  static constexpr std::size_t rows_max = 4;
  struct Row {
    std::uint32_t stream;
    Rhythm rhythm{};
    Rhythm::Window window{};
  };
  void find_next() noexcept {
    next_ = never;
    for (const Row& row : rows_) next_ = std::min(next_, row.window.from);
  }

  LookBudget* budget_;
  std::vector<Row> rows_;
  TimeNs next_ = never;
  TimeNs since_ = 0, until_ = 0;  // 0: it does not look out
};

}  // namespace offpath::channel
