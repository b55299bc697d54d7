// A histogram of durations: two buckets for each doubling, from a microsecond to a minute. Its size is fixed, and
// adding to it allocates nothing. Each bucket keeps the newest request that fell into it, so that a slow one can be
// found in the log. Not thread-safe: its owner copies it for others.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace offpath {

class LatencyHistogram {
 public:
  static constexpr std::size_t octaves = 26;
  static constexpr std::size_t buckets = 2 * octaves + 2;  // the first: up to 1 us; the last: everything above 67 s

  struct Bucket {
    std::uint64_t count = 0;
    // the newest one; 0: it has no ticket
    std::uint64_t channel = 0, ticket = 0;
    TimeNs ns = 0;
  };

  // Durations of at most bound_ns(bucket) belong there; `never`: the last one.
  [[nodiscard]] static constexpr TimeNs bound_ns(std::size_t bucket) noexcept {
    if (bucket + 1 >= buckets) return never;
    if (bucket == 0) return microsecond_ns;
    const TimeNs octave_ns = microsecond_ns << (bucket - 1) / 2;
    return bucket % 2 == 1 ? octave_ns + octave_ns / 2 : 2 * octave_ns;
  }
  [[nodiscard]] static constexpr std::size_t bucket_of(TimeNs ns) noexcept {
    if (ns <= microsecond_ns) return 0;
    const auto halves = static_cast<std::uint64_t>(ns - 1) / (microsecond_ns / 2);  // 2 or more
    const auto octave = static_cast<std::size_t>(std::bit_width(halves)) - 2;
    return std::min(1 + 2 * octave + (halves >> octave & 1), buckets - 1);
  }

  void add(TimeNs ns, std::uint64_t channel = 0, std::uint64_t ticket = 0) noexcept {
    ns = std::max<TimeNs>(ns, 0);
    Bucket& bucket = buckets_[bucket_of(ns)];
    ++bucket.count;
    if (ticket != 0) {
      bucket.channel = channel;
      bucket.ticket = ticket;
      bucket.ns = ns;
    }
    sum_ns_ += static_cast<std::uint64_t>(ns);
  }
  LatencyHistogram& operator+=(const LatencyHistogram& other) noexcept {
    for (std::size_t i = 0; i < buckets; ++i) {
      const Bucket& from = other.buckets_[i];
      const std::uint64_t count = buckets_[i].count + from.count;
      if (from.ticket != 0) buckets_[i] = from;
      buckets_[i].count = count;
    }
    sum_ns_ += other.sum_ns_;
    return *this;
  }

  [[nodiscard]] const Bucket& bucket(std::size_t at) const noexcept { return buckets_[at]; }
  [[nodiscard]] std::uint64_t sum_ns() const noexcept { return sum_ns_; }
  [[nodiscard]] std::uint64_t count() const noexcept {
    std::uint64_t sum = 0;
    for (const Bucket& each : buckets_) sum += each.count;
    return sum;
  }
  // The bound of the bucket that holds this part of all durations: 0.5 is the median. 0 if there are none; the lower
  // bound for the last bucket.
  [[nodiscard]] TimeNs percentile_ns(double part) const noexcept {
    const std::uint64_t all = count();
    const double wanted = part * static_cast<double>(all);
    std::uint64_t below = 0;
    for (std::size_t i = 0; all != 0 && i + 1 < buckets; ++i) {
      below += buckets_[i].count;
      if (below != 0 && static_cast<double>(below) >= wanted) return bound_ns(i);
    }
    return all == 0 ? 0 : bound_ns(buckets - 2);
  }

 private:
  std::array<Bucket, buckets> buckets_{};
  std::uint64_t sum_ns_ = 0;
};

}  // namespace offpath
