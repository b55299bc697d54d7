#include "loop/spin.h"

#include <gtest/gtest.h>

namespace offpath::loop {
namespace {

constexpr TimeNs most_ns = millisecond_ns;

// Work at `at`, after which the loop looks for more as long as it should, and sleeps. Returns how long it looked.
TimeNs work_and_sleep(Spin& spin, TimeNs at) {
  spin.worked(at);
  spin.found_nothing();
  const TimeNs looked = spin.until() - at;
  spin.slept();
  return looked;
}

TimeNs work_alone(Spin& spin, TimeNs& now, unsigned times) {
  TimeNs looked = 0;
  for (unsigned i = 0; i < times; ++i) looked = work_and_sleep(spin, now += 10 * millisecond_ns);
  return looked;
}

TEST(SpinTest, LooksShortlyAfterAFewRoundsAndLongerAfterMany) {
  Spin spin(most_ns);
  TimeNs now = second_ns;
  spin.worked(now);
  EXPECT_EQ(spin.until(), now + Spin::after_few_ns);
  for (unsigned i = 1; i < Spin::few_rounds; ++i) spin.worked(++now);
  EXPECT_EQ(spin.until(), now + most_ns);
}

TEST(SpinTest, SleepsAtOnceAfterLookingInVainForATime) {
  Spin spin(most_ns);
  TimeNs now = second_ns;
  EXPECT_EQ(work_alone(spin, now, Spin::vain_max), Spin::after_few_ns);
  EXPECT_EQ(work_alone(spin, now, 1), 0);
  EXPECT_EQ(work_alone(spin, now, 100), 0) << "and goes on so";
}

TEST(SpinTest, LooksAgainOnceThatWouldHaveMetWork) {
  Spin spin(most_ns);
  TimeNs now = second_ns;
  work_alone(spin, now, Spin::vain_max + 1);
  EXPECT_EQ(work_and_sleep(spin, now += Spin::after_few_ns - 1), Spin::after_few_ns);
}

// Pairs of requests: the second one is met, however often nothing follows it.
TEST(SpinTest, GoesOnLookingWhereItPaysNowAndThen) {
  Spin spin(most_ns);
  TimeNs now = second_ns;
  for (int pair = 0; pair < 100; ++pair) {
    spin.worked(now += 10 * millisecond_ns);
    spin.found_nothing();
    EXPECT_EQ(spin.until(), now + Spin::after_few_ns);
    EXPECT_EQ(work_and_sleep(spin, now += 30 * microsecond_ns), Spin::after_few_ns);
  }
}

// Rounds that follow each other are one piece of work, for which nobody had to look.
TEST(SpinTest, RoundsOfOnePieceOfWorkAreNotMetByLooking) {
  Spin spin(most_ns);
  TimeNs now = second_ns;
  for (unsigned i = 0; i < Spin::vain_max; ++i) {
    now += 10 * millisecond_ns;
    spin.worked(now);
    spin.worked(now += microsecond_ns);
    work_and_sleep(spin, now += microsecond_ns);
  }
  EXPECT_EQ(work_alone(spin, now, 1), 0);
}

// As after a timer or a table of members: sleeps without any work that more could follow.
TEST(SpinTest, SleepsThatFollowNoWorkAreNotInVain) {
  Spin spin(most_ns);
  TimeNs now = second_ns;
  for (unsigned i = 0; i < 10 * Spin::vain_max; ++i) spin.slept();
  EXPECT_EQ(work_alone(spin, now, 1), Spin::after_few_ns);
}

}  // namespace
}  // namespace offpath::loop
