#include "loop/timers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace offpath::loop {
namespace {

struct TimersTest : ::testing::Test {
  Timers timers;
  std::string called;
  Timers::Id start(TimeNs due, char name) {
    return timers.start(due, [this, name](TimeNs, TimeNs) { called += name; });
  }
};

TEST_F(TimersTest, CallsWhatIsDueInOrderOfTimeThenOfStart) {
  start(30, 'd');
  start(10, 'a');
  start(20, 'b');
  start(20, 'c');
  EXPECT_EQ(timers.next_due(), 10);
  EXPECT_EQ(timers.fire(9), 0u);
  EXPECT_EQ(timers.fire(20), 3u);
  EXPECT_EQ(called, "abc");
  EXPECT_EQ(timers.next_due(), 30);
  EXPECT_EQ(timers.fire(1000), 1u);
  EXPECT_EQ(called, "abcd");
  EXPECT_EQ(timers.next_due(), never);
}

TEST_F(TimersTest, TellsHowLateACallIs) {
  TimeNs late = 0;
  timers.start(100, [&](TimeNs now, TimeNs due) { late = now - due; });
  timers.fire(5'000'000'100);
  EXPECT_EQ(late, 5'000'000'000);
}

TEST_F(TimersTest, ACancelledTimerIsNotCalledAndNotWaitedFor) {
  Timers::Id first = start(10, 'a');
  start(20, 'b');
  EXPECT_TRUE(timers.cancel(first));
  EXPECT_FALSE(timers.cancel(first));
  EXPECT_EQ(timers.next_due(), 20);
  timers.fire(20);
  EXPECT_EQ(called, "b");
  EXPECT_FALSE(timers.cancel(first));
}

TEST_F(TimersTest, ATimerMayStartAndCancelOthers) {
  Timers::Id second = 0;
  timers.start(10, [&](TimeNs, TimeNs) {
    EXPECT_TRUE(timers.cancel(second));
    start(5, 'n');  // due already, but it waits for the next call: no endless loop
  });
  second = start(11, 'x');
  EXPECT_EQ(timers.fire(50), 1u);
  EXPECT_EQ(called, "");
  EXPECT_EQ(timers.next_due(), 5);
  EXPECT_EQ(timers.fire(50), 1u);
  EXPECT_EQ(called, "n");
}

TEST_F(TimersTest, AgreesWithASortedListForRandomStartsAndCancels) {
  std::mt19937 random(7);
  std::vector<std::pair<TimeNs, Timers::Id>> expected;
  std::vector<std::pair<TimeNs, Timers::Id>> seen;
  for (int i = 0; i < 5000; ++i) {
    TimeNs due = static_cast<TimeNs>(random() % 1000);
    auto id = std::make_shared<Timers::Id>();
    *id = timers.start(due, [&seen, id](TimeNs, TimeNs asked) { seen.emplace_back(asked, *id); });
    expected.emplace_back(due, *id);
    if (random() % 4 != 0) {  // most are cancelled, as real deadlines are
      auto victim = expected.begin() + static_cast<std::ptrdiff_t>(random() % expected.size());
      EXPECT_TRUE(timers.cancel(victim->second));
      expected.erase(victim);
    }
    ASSERT_EQ(timers.size(), expected.size());
  }
  std::ranges::sort(expected);
  for (TimeNs now = 0; now < 1000; now += 10) {
    timers.fire(now);
    TimeNs due = timers.next_due();
    EXPECT_GT(due, now);
  }
  timers.fire(1000);
  EXPECT_EQ(seen, expected);
}

}  // namespace
}  // namespace offpath::loop
