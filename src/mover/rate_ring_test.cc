#include "mover/rate_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace offpath::mover {
namespace {

using testing::ElementsAre;

constexpr TimeNs interval = RateRing::interval_ns;

TEST(RateRing, DividesEachIntervalByTheTimeForWhichItWasOpen) {
  RateRing ring(3 * second_ns);  // two seconds of the first interval
  ring.add(4000, 4 * second_ns);
  ring.add(5000, 6 * second_ns);
  ring.add(5000, 9 * second_ns);
  EXPECT_THAT(ring.recent(10 * second_ns).bytes_per_s, ElementsAre(2000, 2000));
  EXPECT_EQ(ring.recent(10 * second_ns).ended_ns, 0);
  ring.add(3000, 11 * second_ns);
  EXPECT_THAT(ring.recent(12 * second_ns).bytes_per_s, ElementsAre(2000, 2000, 1500));
}

TEST(RateRing, BeginsWithTheFirstBytesUnlessItIsToldWhen) {
  RateRing ring;
  EXPECT_TRUE(ring.recent(100 * interval).bytes_per_s.empty());
  ring.add(3000, 100 * interval + 2 * second_ns);
  EXPECT_THAT(ring.recent(101 * interval).bytes_per_s, ElementsAre(1000));
}

TEST(RateRing, LeavesOutAnIntervalOfWhichLessThanASecondHasPassed) {
  RateRing ring(0);
  ring.add(5000, second_ns);
  ring.add(70, interval + 300 * millisecond_ns);
  const RecentRates recent = ring.recent(interval + 400 * millisecond_ns);
  EXPECT_THAT(recent.bytes_per_s, ElementsAre(1000));
  EXPECT_EQ(recent.ended_ns, 400 * millisecond_ns);
  EXPECT_TRUE(RateRing(7 * second_ns).recent(7 * second_ns + 1).bytes_per_s.empty());
}

TEST(RateRing, ForgetsWhatIsOlderThanItsIntervals) {
  RateRing ring(0);
  for (std::size_t i = 0; i < 3 * RateRing::intervals; ++i)
    ring.add(5 * i, static_cast<TimeNs>(i) * interval + second_ns);
  const TimeNs end = 3 * static_cast<TimeNs>(RateRing::intervals) * interval;
  const RecentRates recent = ring.recent(end - 1);
  ASSERT_EQ(recent.bytes_per_s.size(), RateRing::intervals);
  EXPECT_NEAR(recent.bytes_per_s.front(), 2.0 * RateRing::intervals, 1e-3);
  EXPECT_NEAR(recent.bytes_per_s.back(), 3.0 * RateRing::intervals - 1, 1e-3);
  // Silence moves it too, without a call.
  EXPECT_THAT(ring.recent(end + interval * 1000).bytes_per_s, testing::Each(0.0));
  ring.add(10, end + 10 * interval);
  EXPECT_NEAR(ring.recent(end + 11 * interval - 1).bytes_per_s.back(), 2.0, 1e-6);
}

}  // namespace
}  // namespace offpath::mover
