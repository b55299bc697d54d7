// The bytes of the last minutes, by intervals of a few seconds: the status draws them as a curve. It is filled when
// bytes pass and needs no timer, so an idle agent keeps sleeping. Its size is fixed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace offpath::mover {

struct RecentRates {
  TimeNs ended_ns = 0;                // how long ago the last interval ended; 0: it is the current one
  std::vector<double> bytes_per_s{};  // by interval, the oldest first
};

class RateRing {
 public:
  static constexpr TimeNs interval_ns = 5 * second_ns;
  static constexpr std::size_t intervals = 60;

  RateRing() = default;  // begins with the first add
  explicit RateRing(TimeNs begin) noexcept : begin_(begin), newest_(begin / interval_ns) {}

  void add(std::uint64_t bytes, TimeNs now) noexcept {
    if (begin_ == never) *this = RateRing(now);
    move_to(now / interval_ns);
    bytes_[place(newest_)] += static_cast<float>(bytes);
  }

  // The rates since the beginning, over at most five minutes. The current interval counts once a second of it has
  // passed.
  [[nodiscard]] RecentRates recent(TimeNs now) const {
    if (begin_ == never) return {};
    RateRing read = *this;
    read.move_to(now / interval_ns);
    const std::int64_t current = read.newest_, oldest = current - static_cast<std::int64_t>(intervals) + 1;
    RecentRates found;
    for (std::int64_t i = std::max(oldest, begin_ / interval_ns); i <= current; ++i) {
      const TimeNs from = std::max(i * interval_ns, begin_), to = std::min((i + 1) * interval_ns, now);
      if (i == current && to - from < second_ns) {
        found.ended_ns = now - current * interval_ns;
        break;
      }
      const double seconds = static_cast<double>(std::max(to - from, second_ns)) / second_ns;
      found.bytes_per_s.push_back(static_cast<double>(read.bytes_[place(i)]) / seconds);
    }
    return found;
  }
  [[nodiscard]] double bytes(TimeNs now) const noexcept {  // about as many as recent() has
    double sum = 0;
    if (now / interval_ns - newest_ >= static_cast<std::int64_t>(intervals)) return sum;
    for (const float each : bytes_) sum += static_cast<double>(each);
    return sum;
  }

 private:
  [[nodiscard]] static std::size_t place(std::int64_t interval) noexcept {
    return static_cast<std::size_t>(interval) % intervals;
  }
  void move_to(std::int64_t interval) noexcept {
    if (interval - newest_ >= static_cast<std::int64_t>(intervals)) {
      bytes_ = {};
      newest_ = interval;
    }
    while (newest_ < interval) bytes_[place(++newest_)] = 0;
  }

  TimeNs begin_ = never;
  std::int64_t newest_ = 0;  // number of the newest interval, since the clock's zero
  std::array<float, intervals> bytes_{};
};

}  // namespace offpath::mover
