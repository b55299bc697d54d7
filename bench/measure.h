// How every benchmark measures: subject and peer take turns in one process tree, the ratio of each
// pair is taken, and the median of the ratios stands with its 95 % interval. Nothing here knows what is
// measured; report.h says what a figure claims, machine.h what it was measured on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace offpath::bench {

inline constexpr std::size_t pairs_min = 21;  // what a published ratio stands on

struct Interval {
  double low = 0;
  double high = 0;
};

// All of them copy what they sort. `values` must not be empty; `fraction` is in [0, 1].
[[nodiscard]] double median(std::span<const double> values);
[[nodiscard]] double quantile(std::span<const double> values, double fraction);
[[nodiscard]] double mean(std::span<const double> values);
[[nodiscard]] double standard_deviation(std::span<const double> values);

// Distribution-free interval of the median from order statistics: the two ranks between which the median
// lies with a probability of at least 95 %. With fewer than six values that is not to be had: then the range.
[[nodiscard]] Interval median_interval_95(std::span<const double> values);

// One measurement of each side per pair. Values are costs (time, CPU time, bytes): less is better, and
// the ratio is peer / subject, so that more than 1 says the subject does better.
struct Comparison {
  double subject = 0;  // median
  double peer = 0;     // median
  double ratio = 0;    // median of the pairs' ratios
  Interval interval;   // of that median, 95 %
  std::size_t pairs = 0;
};
[[nodiscard]] Comparison compare(std::span<const double> subject, std::span<const double> peer);

struct PairPlan {
  std::size_t pairs = pairs_min;
  std::size_t warmups = 2;  // unrecorded turns of each side before the first pair
};

// A turn does the work once (or a fixed number of times) and returns its cost.
using Turn = std::function<Result<double>()>;

// Interleaves: who is first changes every three pairs, so that drift cancels. Every pair would be too often: of three
// buffers that go round between two streams that keep one each, one side would then always get the first and the third,
// the other the second and the third; changing every three pairs, both get each of them equally often.
[[nodiscard]] Result<Comparison> run_pairs(const PairPlan& plan, const Turn& subject, const Turn& peer);

// Turns for a side that has no peer.
[[nodiscard]] Result<std::vector<double>> run_turns(std::size_t turns, std::size_t warmups, const Turn& turn);

// Keeps a value the optimiser would otherwise see is unused.
template <class T>
void keep(const T& value) noexcept {
  asm volatile("" : : "g"(&value) : "memory");
}

}  // namespace offpath::bench
