#include "tcp/program/look_timing.h"

#include <gtest/gtest.h>

namespace offpath::tcp {
namespace {

constexpr TimeNs look_ns = 2 * microsecond_ns;
constexpr LookTiming::Found one{1, false, false}, several{3, false, false}, sleep{0, false, true};

class Timing : public testing::Test {
 protected:
  // Looks until one begins `after` or later, which finds something. Returns how many have found nothing.
  unsigned look_until(TimeNs after, const LookTiming::Found& found) {
    for (unsigned missed = 0;; ++missed) {
      if (timing.next() == never) return ~0u;
      now = std::max(now, timing.next());
      timing.began(now);
      const bool there = now >= after;
      now += look_ns;
      if (there) return timing.found(found, now), missed;
      timing.missed(now);
    }
  }
  // The agent writes events; an answer comes after that time, and nothing else.
  unsigned answer_after(TimeNs ns) {
    now += millisecond_ns;
    timing.rest();
    timing.wrote(false, now);
    return look_until(now + ns, one);
  }

  LookTiming timing;
  TimeNs now = second_ns;
};

TEST_F(Timing, AnAnswerIsLookedForWhenItCameTheLastTime) {
  answer_after(20 * microsecond_ns);
  now += millisecond_ns;
  timing.rest();
  timing.wrote(false, now);
  EXPECT_TRUE(timing.expects());
  EXPECT_GE(timing.next(), now + 20 * microsecond_ns);
  EXPECT_LE(timing.next(), now + 40 * microsecond_ns);
  unsigned missed = 0;
  for (int i = 0; i < 100; ++i) missed += answer_after(20 * microsecond_ns);
  EXPECT_LE(missed, 20u) << "a shorter wait is tried now and then";
}

TEST_F(Timing, AFasterProgramIsFoundOut) {
  answer_after(40 * microsecond_ns);
  for (int i = 0; i < 100; ++i) answer_after(5 * microsecond_ns);
  now += millisecond_ns;
  timing.rest();
  timing.wrote(false, now);
  EXPECT_LE(timing.next() - now, 10 * microsecond_ns);
}

TEST_F(Timing, WhereNoAnswerComesInTimeTheProgramWakesTheAgent) {
  EXPECT_EQ(answer_after(LookTiming::limit_max_ns), ~0u);
  now += millisecond_ns;
  timing.wrote(false, now);
  EXPECT_FALSE(timing.expects());
  EXPECT_EQ(timing.next(), never);
  EXPECT_LE(timing.rests_at(), now);
  // A wake shows that it has become faster.
  timing.woken(now + 10 * microsecond_ns);
  EXPECT_EQ(timing.next(), now + 10 * microsecond_ns);
  look_until(0, one);
  now += millisecond_ns;
  timing.rest();
  timing.wrote(false, now);
  EXPECT_EQ(timing.next(), now + 10 * microsecond_ns);
}

TEST_F(Timing, EventsDoNotPutTheLookOff) {
  answer_after(20 * microsecond_ns);
  now += millisecond_ns;
  timing.rest();
  timing.wrote(false, now);
  const TimeNs due = timing.next();
  for (int i = 0; i < 10; ++i) timing.wrote(i % 2 == 0, now + i * microsecond_ns);
  EXPECT_EQ(timing.next(), due);
}

TEST_F(Timing, AStreamIsReadWithoutPauses) {
  answer_after(0);
  for (int i = 0; i < 20; ++i) look_until(now + 30 * microsecond_ns, one);
  for (int i = 0; i < 20; ++i) look_until(0, several);
  EXPECT_LE(timing.next(), now + microsecond_ns);
}

TEST_F(Timing, AnExpectedSleepNeedsNoLookOfItsOwn) {
  answer_after(5 * microsecond_ns);
  look_until(now + 20 * microsecond_ns, sleep);
  answer_after(5 * microsecond_ns);
  EXPECT_EQ(timing.next(), never);
  EXPECT_GE(timing.rests_at(), now + 20 * microsecond_ns);
  EXPECT_LE(timing.rests_at(), now + LookTiming::limit_max_ns);
}

}  // namespace
}  // namespace offpath::tcp
