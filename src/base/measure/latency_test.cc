#include "base/measure/latency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/hash/mix.h"

namespace offpath {
namespace {

using Histogram = LatencyHistogram;

TEST(Latency, BucketsMeetAtTheirBounds) {
  EXPECT_EQ(Histogram::bound_ns(0), 1000);
  EXPECT_EQ(Histogram::bound_ns(1), 1500);
  EXPECT_EQ(Histogram::bound_ns(2), 2000);
  EXPECT_EQ(Histogram::bound_ns(3), 3000);
  EXPECT_EQ(Histogram::bound_ns(Histogram::buckets - 2), TimeNs{1000} << 26) << "67 s";
  EXPECT_EQ(Histogram::bound_ns(Histogram::buckets - 1), never);
  for (std::size_t i = 0; i + 1 < Histogram::buckets; ++i) {
    EXPECT_EQ(Histogram::bucket_of(Histogram::bound_ns(i)), i);
    EXPECT_EQ(Histogram::bucket_of(Histogram::bound_ns(i) + 1), i + 1);
  }
  EXPECT_EQ(Histogram::bucket_of(0), 0u);
  EXPECT_EQ(Histogram::bucket_of(never), Histogram::buckets - 1);
}

TEST(Latency, CountsAndSumsAreExact) {
  Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.percentile_ns(0.5), 0);
  histogram.add(-5);  // a clock that was read in another order
  histogram.add(1200, 3, 77);
  histogram.add(1400);
  histogram.add(never / 2);
  EXPECT_EQ(histogram.count(), 4u);
  EXPECT_EQ(histogram.sum_ns(), 2600u + static_cast<std::uint64_t>(never / 2));
  EXPECT_EQ(histogram.bucket(1).count, 2u);
  EXPECT_EQ(histogram.bucket(1).ticket, 77u) << "one without a ticket leaves it";
  EXPECT_EQ(histogram.bucket(1).ns, 1200);
  EXPECT_EQ(histogram.percentile_ns(0.0), 1000);
  EXPECT_EQ(histogram.percentile_ns(0.5), 1500);
  EXPECT_EQ(histogram.percentile_ns(1.0), Histogram::bound_ns(Histogram::buckets - 2));
}

TEST(Latency, PercentilesAreAtMostHalfTooLarge) {
  Histogram histogram;
  std::vector<TimeNs> all;
  std::uint64_t state = 7;
  for (int i = 0; i < 10'000; ++i) {
    const auto ns = static_cast<TimeNs>(2000 + (mix(state += golden_ratio) >> 20) % (1ull << (12 + i % 20)));
    all.push_back(ns);
    histogram.add(ns);
  }
  std::ranges::sort(all);
  for (const double part : {0.01, 0.25, 0.5, 0.9, 0.99, 0.999}) {
    const auto exact = static_cast<double>(all[static_cast<std::size_t>(part * static_cast<double>(all.size())) - 1]);
    const auto told = static_cast<double>(histogram.percentile_ns(part));
    EXPECT_GE(told, exact) << part;
    EXPECT_LE(told, 1.5 * exact + 1) << part;
  }
}

TEST(Latency, OfSeveralCoresIsTheirSum) {
  Histogram one, other;
  one.add(1200, 1, 10);
  one.add(5000, 1, 11);
  other.add(1300, 2, 20);
  other.add(1300);
  one += other;
  EXPECT_EQ(one.count(), 4u);
  EXPECT_EQ(one.sum_ns(), 8800u);
  EXPECT_EQ(one.bucket(1).count, 3u);
  EXPECT_EQ(one.bucket(1).ticket, 20u);
  EXPECT_EQ(one.bucket(Histogram::bucket_of(5000)).ticket, 11u);
}

}  // namespace
}  // namespace offpath
