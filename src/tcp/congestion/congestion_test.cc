// Each algorithm over a path of a given width: alone, and under loss, marks and delay.
#include "tcp/congestion/congestion.h"

#include <gtest/gtest.h>

#include <array>

namespace offpath::tcp {
namespace {

constexpr std::uint32_t mss = 1000;
constexpr TimeNs rtt = 10 * millisecond_ns;

// Acknowledges a whole window in one round trip, segment by segment.
void round_trip(const CongestionControl& control, Congestion& congestion, TimeNs& now, TimeNs measured = rtt,
                double marked = 0, TimeNs delay = 0) {
  const std::uint32_t window = congestion.window;
  for (std::uint32_t at = 0; at + mss <= window; at += mss) {
    const auto share = static_cast<std::uint32_t>(marked * mss);
    control.on_acknowledged(
        congestion, {mss, share, window, mss, measured, rtt, now + static_cast<TimeNs>(at) * rtt / window, delay});
  }
  now += rtt;
}

class Algorithm : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<const CongestionControl> control = congestion_control(GetParam()).value();
  Congestion congestion;
  TimeNs now = second_ns;
  void SetUp() override { control->begin(congestion, mss, now); }
};

TEST_P(Algorithm, DoublesUntilItMeetsItsThreshold) {
  EXPECT_EQ(control->name(), GetParam());
  EXPECT_EQ(congestion.window, 10 * mss);
  round_trip(*control, congestion, now);
  round_trip(*control, congestion, now);
  round_trip(*control, congestion, now);
  EXPECT_GE(congestion.window, 40 * mss);
  EXPECT_LE(congestion.window, 200 * mss);
}

TEST_P(Algorithm, GivesWayAtALossAndComesBack) {
  for (int i = 0; i < 5; ++i) round_trip(*control, congestion, now);
  const std::uint32_t before = congestion.window;
  control->on_loss(congestion, before, mss, now);
  EXPECT_LE(congestion.window, before * 3 / 4);
  EXPECT_GE(congestion.window, before / 4);
  const std::uint32_t after = congestion.window;
  for (int i = 0; i < 200; ++i) round_trip(*control, congestion, now);
  EXPECT_GT(congestion.window, after + 20 * mss);
}

TEST_P(Algorithm, IsDownToOneSegmentAfterATimeout) {
  for (int i = 0; i < 5; ++i) round_trip(*control, congestion, now);
  control->on_timeout(congestion, congestion.window, mss, true, now);
  EXPECT_EQ(congestion.window, mss);
  control->on_timeout(congestion, congestion.window, mss, false, now);
  EXPECT_EQ(congestion.window, mss);
}

TEST_P(Algorithm, DoesNotRaiseAWindowThatIsNotUsed) {
  for (int i = 0; i < 1000; ++i, now += rtt) control->on_acknowledged(congestion, {mss, 0, mss, mss, rtt, rtt, now});
  EXPECT_LE(congestion.window, 15 * mss);
}

TEST_P(Algorithm, NeverLeavesItsBounds) {
  for (int i = 0; i < 3000; ++i) {
    control->on_acknowledged(congestion, {1u << 30, 0, congestion.window, mss, rtt, rtt, now});
    now += rtt;
  }
  EXPECT_LE(congestion.window, congestion_window_max);
  for (int i = 0; i < 100; ++i) control->on_loss(congestion, congestion.window, mss, now);
  EXPECT_GE(congestion.window, mss);
}

INSTANTIATE_TEST_SUITE_P(All, Algorithm, testing::Values("new_reno", "cubic", "dctcp", "timely"),
                         [](const auto& algorithm) { return std::string(algorithm.param); });

TEST(Congestion, NewRenoGrowsByASegmentInARoundTrip) {
  const auto control = congestion_control("new_reno").value();
  Congestion congestion{100 * mss, 50 * mss};
  TimeNs now = 0;
  for (int i = 0; i < 10; ++i) round_trip(*control, congestion, now);
  EXPECT_NEAR(congestion.window, 110 * mss, mss);
}

// RFC 9438, 4.2: after a loss the window is where it was K = cbrt(W * 0.3 / 0.4) seconds later.
TEST(Congestion, CubicIsBackAfterTheTimeOfItsCurve) {
  const auto control = congestion_control("cubic").value();
  Congestion congestion{1000 * mss, 500 * mss};
  TimeNs now = second_ns;
  control->on_loss(congestion, congestion.window, mss, now);
  EXPECT_EQ(congestion.window, 700 * mss);
  const TimeNs begin = now;
  while (now - begin < 9 * second_ns) round_trip(*control, congestion, now);  // K = 9.09 s
  EXPECT_NEAR(congestion.window, 1000 * mss, 20 * mss);
  while (now - begin < 12 * second_ns) round_trip(*control, congestion, now);
  EXPECT_GT(congestion.window, 1005 * mss);
}

// After a repair little is in flight, unlike a window that has not been the limit for a while.
TEST(Congestion, CubicReducesTheWindowThatWasInUse) {
  const auto control = congestion_control("cubic").value();
  Congestion congestion{20 * mss, 10 * mss};
  TimeNs now = second_ns;
  round_trip(*control, congestion, now);
  const std::uint32_t used = congestion.window;
  control->on_loss(congestion, 5 * mss, mss, now);
  EXPECT_NEAR(congestion.window, used * 0.7, mss);
  control->on_acknowledged(congestion,
                           {.bytes = mss, .in_flight = 2 * mss, .mss = mss, .smoothed_rtt_ns = rtt, .now = now});
  control->on_loss(congestion, 4 * mss, mss, now + second_ns);
  EXPECT_NEAR(congestion.window, 4 * mss * 0.7, mss);
}

// HyStart++: round trips that grow by more than an eighth, and by 4 ms at least, end the first slow start.
TEST(Congestion, TheFirstSlowStartEndsBeforeTheQueueOverflows) {
  for (const char* name : {"new_reno", "cubic"}) {
    const auto control = congestion_control(name).value();
    Congestion congestion;
    TimeNs now = second_ns;
    control->begin(congestion, mss, now);
    TimeNs delay = 40 * millisecond_ns;
    round_trip(*control, congestion, now, rtt, 0, delay);
    round_trip(*control, congestion, now, rtt, 0, delay + 4 * millisecond_ns);
    EXPECT_EQ(congestion.window, 40 * mss) << "as if it were noise";
    delay += 10 * millisecond_ns;
    round_trip(*control, congestion, now, rtt, 0, delay);
    const std::uint32_t found = congestion.window;
    EXPECT_LT(found, 65 * mss);
    for (int i = 0; i < 4; ++i) round_trip(*control, congestion, now, rtt, 0, delay);
    EXPECT_GT(congestion.window, found * 2) << "a quarter in each round";
    EXPECT_LT(congestion.window, found * 5 / 2);
    EXPECT_EQ(congestion.threshold, congestion_window_max);
    round_trip(*control, congestion, now, rtt, 0, delay);
    EXPECT_LT(congestion.threshold, found * 3) << "after five rounds";
    const std::uint32_t window = congestion.window;
    round_trip(*control, congestion, now, rtt, 0, delay);
    EXPECT_LE(congestion.window, window + 3 * mss);
  }
}

TEST(Congestion, TheFirstSlowStartContinuesAfterNoise) {
  const auto control = congestion_control("cubic").value();
  Congestion congestion;
  TimeNs now = second_ns;
  control->begin(congestion, mss, now);
  for (const TimeNs delay : {40, 60, 40, 40}) round_trip(*control, congestion, now, rtt, 0, delay * millisecond_ns);
  EXPECT_GT(congestion.window, 80 * mss);
  EXPECT_EQ(congestion.threshold, congestion_window_max);
  const std::uint32_t window = congestion.window;
  round_trip(*control, congestion, now, rtt, 0, 40 * millisecond_ns);
  EXPECT_NEAR(congestion.window, 2 * window, mss);
}

// RFC 9438, 5.8: the curve counts only time in which the window was used.
TEST(Congestion, CubicDoesNotGrowForTimeInWhichItsWindowWasNotUsed) {
  const auto control = congestion_control("cubic").value();
  for (const bool idle : {false, true}) {
    Congestion congestion{1000 * mss, 500 * mss};
    TimeNs now = second_ns;
    control->on_loss(congestion, congestion.window, mss, now);
    while (now < 5 * second_ns) round_trip(*control, congestion, now);
    const std::uint32_t before = congestion.window;
    ASSERT_LT(before, 960 * mss);
    if (idle) {
      // Less than a retransmission timeout each.
      for (int i = 0; i < 200; ++i, now += 150 * millisecond_ns)
        control->on_idle(congestion, mss, 150 * millisecond_ns, 200 * millisecond_ns);
    } else {
      for (; now < 35 * second_ns; now += rtt) control->on_acknowledged(congestion, {mss, 0, mss, mss, rtt, rtt, now});
    }
    EXPECT_EQ(congestion.window, before);
    for (int i = 0; i < 10; ++i) round_trip(*control, congestion, now);
    EXPECT_LT(congestion.window, before + 20 * mss);
  }
}

// RFC 4015: the former bytes in flight are allowed again, and the rest returns by slow start.
TEST(Congestion, AnUndoneLossLeavesNoTraceAndNoBurst) {
  for (const char* name : {"new_reno", "cubic"}) {
    const auto control = congestion_control(name).value();
    Congestion congestion{1000 * mss, 500 * mss};
    TimeNs now = second_ns;
    for (int i = 0; i < 10; ++i) round_trip(*control, congestion, now);
    const Congestion before = congestion;
    control->on_timeout(congestion, congestion.window, mss, true, now);
    EXPECT_EQ(congestion.window, mss);
    control->undo(congestion, before, 100 * mss, mss, rtt);
    EXPECT_EQ(congestion.window, 110 * mss);
    for (int i = 0; i < 4; ++i) round_trip(*control, congestion, now);
    EXPECT_GE(congestion.window, before.window);
    EXPECT_LT(congestion.window, before.window + 20 * mss);
  }
}

// Its curve leaves out the time of an undone loss and time in which the window was not used, without counting overlaps
// twice.
TEST(Congestion, CubicLeavesOutEachTimeOnce) {
  const auto control = congestion_control("cubic").value();
  Congestion congestion;
  TimeNs now = second_ns;
  control->begin(congestion, mss, now);
  for (int i = 0; i < 6; ++i) round_trip(*control, congestion, now);
  control->on_loss(congestion, congestion.window, mss, now);
  for (int i = 0; i < 4; ++i) round_trip(*control, congestion, now);
  const TimeNs began = congestion.own.cubic.epoch_at, unused = now;
  ASSERT_NE(began, 0);
  control->on_acknowledged(congestion, {mss, 0, mss, mss, rtt, rtt, now});
  now += 5 * second_ns;
  const Congestion before = congestion;
  control->on_loss(congestion, congestion.window, mss, now);
  now += 3 * second_ns;
  control->undo(congestion, before, before.window, mss, 3 * second_ns);
  now += second_ns;
  congestion.window = before.window;
  control->on_acknowledged(congestion, {mss, 0, congestion.window, mss, rtt, rtt, now});
  EXPECT_EQ(congestion.own.cubic.epoch_at - began, now - unused);
}

TEST(Congestion, DctcpGivesWayAsMuchAsIsMarked) {
  const auto control = congestion_control("dctcp").value();
  const auto rate_after = [&](double marked) {
    Congestion congestion;
    TimeNs now = second_ns;
    control->begin(congestion, mss, now);
    for (int i = 0; i < 6; ++i) round_trip(*control, congestion, now);
    for (int i = 0; i < 60; ++i) round_trip(*control, congestion, now, rtt, 0.01);  // alpha settles
    const std::uint64_t before = congestion.rate;
    for (int i = 0; i < 10; ++i) round_trip(*control, congestion, now, rtt, marked);
    return static_cast<double>(congestion.rate) / static_cast<double>(before);
  };
  EXPECT_GT(rate_after(0.01), 0.8);
  EXPECT_LT(rate_after(1.0), 0.5);
  EXPECT_GT(rate_after(0), 1.0);
}

TEST(Congestion, TimelyGoesByDelay) {
  const auto control = congestion_control("timely").value();
  Congestion congestion;
  TimeNs now = second_ns;
  control->begin(congestion, mss, now);
  for (int i = 0; i < 6; ++i) round_trip(*control, congestion, now);
  const std::uint64_t before = congestion.rate;
  for (int i = 0; i < 5; ++i) round_trip(*control, congestion, now, 10 * rtt);
  EXPECT_LT(congestion.rate, before / 4);
}

// Any window of another algorithm, in slow start or after it, stays, and is continued.
TEST(Congestion, TakesOverFromAnother) {
  constexpr std::array names{"new_reno", "cubic", "dctcp", "timely"};
  for (const char* before : names)
    for (const char* after : names)
      for (const bool lost : {false, true}) {
        const auto one = congestion_control(before).value(), two = congestion_control(after).value();
        EXPECT_EQ(congestion_control(two->kind()).name(), two->name());
        Congestion congestion;
        TimeNs now = second_ns;
        one->begin(congestion, mss, now);
        for (int i = 0; i < 3; ++i) round_trip(*one, congestion, now);
        if (lost) one->on_loss(congestion, congestion.window, mss, now);
        const std::uint32_t window = congestion.window;
        two->take_over(congestion);
        EXPECT_EQ(congestion.window, window);
        EXPECT_EQ(congestion.rate, 0u);
        for (int i = 0; i < 10; ++i) round_trip(*two, congestion, now);
        EXPECT_GT(congestion.window, window) << before << " " << after;
        two->on_loss(congestion, congestion.window, mss, now);
        EXPECT_GE(congestion.window, 2 * mss);
      }
}

TEST(Congestion, NamesWhatThereIs) {
  const auto none = congestion_control("vegas");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("cubic"), std::string::npos);
}

}  // namespace
}  // namespace offpath::tcp
