#include "tcp/area/look_timing.h"

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

class ReadTimes : public testing::Test {
 protected:
  void looks(unsigned count, TimeNs took, bool alone) {
    for (unsigned i = 0; i < count; ++i) time.add(took, alone, now += 10 * millisecond_ns);
  }
  ReadTime time;
  TimeNs now = second_ns;
};

// A stream leaves no look alone after the first one, during which the loop stood still.
TEST_F(ReadTimes, AStalledFirstLookIsForgottenInAStream) {
  looks(1, second_ns, true);
  EXPECT_LE(time.ns(), ReadTime::first_most_ns);
  looks(1, 5 * look_ns, false);
  EXPECT_EQ(time.ns(), 5 * look_ns);
  looks(1000, 3 * look_ns, false);
  EXPECT_EQ(time.ns(), 3 * look_ns);
}

TEST_F(ReadTimes, IsMeasuredWhereNoLookIsAlone) {
  EXPECT_EQ(time.ns(), 0);
  looks(1, 4 * look_ns, false);
  EXPECT_EQ(time.ns(), 4 * look_ns);
}

TEST_F(ReadTimes, IsThatOfTheLinkAloneAndFollowsIt) {
  looks(200, look_ns, true);
  looks(1000, 40 * look_ns, false);  // behind payload
  EXPECT_EQ(time.ns(), look_ns);
  looks(3, second_ns, true);  // of a loop that stood still
  EXPECT_EQ(time.ns(), look_ns);
  looks(250, 10 * look_ns, true);  // of another path
  EXPECT_EQ(time.ns(), 10 * look_ns);
}

}  // namespace
}  // namespace offpath::tcp
