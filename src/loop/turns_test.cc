#include "loop/turns.h"

#include <gtest/gtest.h>

#include <random>

namespace offpath::loop {
namespace {

constexpr TimeNs nap_ns = 50 * microsecond_ns, slice_ns = 4 * millisecond_ns;

// A loop without work in virtual time, on a core where another thread computes at times.
struct SimulatedCore {
  Turns turns{false};
  TimeNs now = 0, taken_ns = 0, computes_until = 0;
  unsigned naps = 0, slow_yields = 0;

  void run_until(TimeNs end) {
    while (now < end) {
      if (turns.naps(now)) {
        ++naps;
        now += nap_ns;
        continue;
      }
      const TimeNs from = now;
      now += now < computes_until ? std::min(slice_ns, computes_until - now) : microsecond_ns;
      turns.yielded(from, now);
      if (now - from < Turns::taken_ns) continue;
      ++slow_yields;
      taken_ns += now - from;
    }
  }
  void compute(TimeNs length) {
    computes_until = now + length;
    run_until(computes_until);
  }
};

TEST(TurnsTest, NapsEndSoonAfterAThreadThatComputedForAMoment) {
  SimulatedCore core;
  core.compute(800 * microsecond_ns);
  core.run_until(second_ns);
  EXPECT_EQ(core.slow_yields, 1u);
  EXPECT_GT(core.naps, 0u);
  EXPECT_LE(core.naps * nap_ns, Turns::nap_share * 800 * microsecond_ns + nap_ns);
}

TEST(TurnsTest, AThreadThatComputesOnIsYieldedToOnceASecond) {
  SimulatedCore core;
  core.compute(2 * second_ns);
  const unsigned before = core.slow_yields;
  core.compute(20 * second_ns);
  EXPECT_LE(before, 8u);
  EXPECT_LE(core.slow_yields, before + 20);
  core.run_until(core.now + Turns::nap_time_max_ns + millisecond_ns);  // it has ended
  ASSERT_FALSE(core.turns.naps(core.now));
  const unsigned naps = core.naps;
  core.compute(millisecond_ns);  // the next one is one that ends soon, until it has shown otherwise
  core.run_until(core.now + second_ns);
  EXPECT_LE(core.naps - naps, 1 + Turns::nap_share * millisecond_ns / nap_ns);
}

TEST(TurnsTest, SlowYieldsTakeAtMostANinthOfTheTime) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<TimeNs> length(0, 20 * millisecond_ns), pause(0, (1 + seed) * millisecond_ns);
    SimulatedCore core;
    while (core.now < 10 * second_ns) {
      core.compute(length(random));
      core.run_until(core.now + pause(random));
    }
    EXPECT_LE(core.taken_ns, core.now / (Turns::nap_share + 1) + slice_ns) << seed;
  }
}

TEST(TurnsTest, SpinsBrieflyForASecondAfterAStopByAQuota) {
  constexpr TimeNs spin_ns = millisecond_ns;
  Turns limited(true), free(false);
  for (Turns* turns : {&limited, &free}) {
    turns->found_nothing(0, Turns::taken_ns - 1);
    EXPECT_EQ(turns->spin(1, spin_ns), spin_ns) << "such a round was not stopped";
    turns->found_nothing(0, Turns::taken_ns);
  }
  EXPECT_EQ(free.spin(Turns::taken_ns, spin_ns), spin_ns);
  const TimeNs over = Turns::taken_ns + Turns::brief_ns;
  for (const TimeNs now : {Turns::taken_ns, over - 1}) {
    EXPECT_TRUE(limited.is_brief(now));
    EXPECT_EQ(limited.spin(now, spin_ns), Turns::brief_spin_ns);
    EXPECT_EQ(limited.spin(now, 0), 0) << "never longer than the options say";
  }
  EXPECT_FALSE(limited.is_brief(over));
  EXPECT_EQ(limited.spin(over, spin_ns), spin_ns);
  limited.yielded(over, over + Turns::taken_ns);  // a loop that spins is mostly stopped in a yield
  EXPECT_TRUE(limited.is_brief(over + Turns::taken_ns));
}

}  // namespace
}  // namespace offpath::loop
