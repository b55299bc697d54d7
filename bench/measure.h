// How every benchmark measures: subject and peer take turns in one process tree, the ratio of each pair is taken, and
// the median of the ratios is reported with its 95 % interval. Read this first in bench, then report.h (claims) and
// machine.h (the machine); this file does not depend on the measured subject.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace offpath::bench {

inline constexpr std::size_t pairs_min = 21;  // the least for a published ratio

struct Interval {
  double low = 0;
  double high = 0;
};

// All of them sort a copy. `values` must not be empty; `fraction` is in [0, 1].
[[nodiscard]] double median(std::span<const double> values);
[[nodiscard]] double quantile(std::span<const double> values, double fraction);
[[nodiscard]] double mean(std::span<const double> values);
[[nodiscard]] double standard_deviation(std::span<const double> values);

// Distribution-free interval of the median from order statistics: the two ranks between which the median lies with a
// probability of at least 95 %. With fewer than six values, the range instead.
[[nodiscard]] Interval median_interval_95(std::span<const double> values);

// One measurement of each side per pair. Values are costs (time, CPU time, bytes): less is better. The ratio is peer /
// subject, so more than 1 means that the subject is better.
struct Comparison {
  double subject = 0;  // median
  double peer = 0;     // median
  double ratio = 0;    // median of the pairs' ratios
  Interval interval;   // of that median, 95 %
  std::size_t pairs = 0;
};
[[nodiscard]] Comparison compare(std::span<const double> subject, std::span<const double> peer);

// How far a ratio is from 1, whichever way: the larger of it and its inverse. Infinite for 0 and less.
[[nodiscard]] double either_way(double ratio);

struct PairPlan {
  std::size_t pairs = pairs_min;
  std::size_t warmups = 2;  // unrecorded turns of each side before the first pair
};

// A turn does the work once (or a fixed number of times) and returns its cost.
using Turn = std::function<Result<double>()>;

// Interleaves: the side that begins changes every three pairs, so that drift cancels. Changing it every pair would be
// wrong: if three buffers circulate between two streams that keep one each, one side would always get the first and the
// third, and the other the second and the third. With three pairs both sides get each of them equally often.
[[nodiscard]] Result<Comparison> run_pairs(const PairPlan& plan, const Turn& subject, const Turn& peer);

// Turns of a side without a peer.
[[nodiscard]] Result<std::vector<double>> run_turns(std::size_t turns, std::size_t warmups, const Turn& turn);

// Prevents the optimiser from removing an unused value.
template <class T>
void keep(const T& value) noexcept {
  asm volatile("" : : "g"(&value) : "memory");
}

}  // namespace offpath::bench
