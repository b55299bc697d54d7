// Cores in virtual time: what a few steps come to, by hand.
#include "testing/tcp/simulated_cores.h"

#include <gtest/gtest.h>

#include <string>

namespace offpath::tcp {
namespace {

// Does what it was told, step by step, and notes when each step ended; then it sleeps.
class Scripted final : public SimulatedProcess {
 public:
  using SimulatedProcess::SimulatedProcess;
  using SimulatedProcess::sleep;
  using SimulatedProcess::work;
  using SimulatedProcess::work_in_call;
  using SimulatedProcess::yield;
  [[nodiscard]] Then note() {
    return [this](TimeNs now) { ended.push_back(now); };
  }
  std::vector<TimeNs> ended;

 private:
  void go_on(TimeNs) override { sleep(); }
};

using Times = std::vector<TimeNs>;

TEST(SimulatedCores, AProcessHasItsCoreUntilItYieldsOrSleeps) {
  SimulatedCores cores(1, {.switch_ns = 10}, 0);
  Scripted one(cores, 0), other(cores, 0);
  one.work(100, one.note());
  one.yield(5);
  one.work(100, one.note());
  other.work(50, other.note());
  cores.start(one);
  cores.start(other);
  EXPECT_FALSE(cores.run_until(1'000)) << "both sleep, and nobody wakes them";
  EXPECT_EQ(one.ended, (Times{100, 105 + 10 + 50 + 10 + 100}));
  EXPECT_EQ(other.ended, (Times{105 + 10 + 50}));
  EXPECT_EQ(one.busy_ns(), 205);
  EXPECT_EQ(cores.busy_ns(0), 255) << "switches are nobody's";
}

TEST(SimulatedCores, AWakeReachesAnotherCoreAfterAWhileAndItsOwnAtOnce) {
  SimulatedCores cores(2, {.wake_latency_ns = 30}, 0);
  Scripted waker(cores, 0), far(cores, 1), near(cores, 0);
  for (Scripted* each : {&far, &near}) {
    each->sleep();
    each->work(7, each->note());
    cores.start(*each);
  }
  waker.work(100, [&](TimeNs) {
    cores.wake(far, waker.core());
    cores.wake(near, waker.core());
  });
  waker.work(50, waker.note());
  cores.start(waker);
  EXPECT_FALSE(cores.run_until(1'000));
  EXPECT_EQ(far.ended, (Times{100 + 30 + 7}));
  EXPECT_EQ(waker.ended, (Times{150}));
  EXPECT_EQ(near.ended, (Times{150 + 7})) << "when the waker sleeps";
}

TEST(SimulatedCores, AWakeBeforeTheSleepIsNotLost) {
  SimulatedCores cores(2, {}, 0);
  Scripted waker(cores, 0), sleeper(cores, 1);
  waker.work(10, [&](TimeNs) { cores.wake(sleeper, waker.core()); });
  sleeper.work(20);
  sleeper.sleep(sleeper.note());
  cores.start(waker);
  cores.start(sleeper);
  EXPECT_FALSE(cores.run_until(1'000));
  EXPECT_EQ(sleeper.ended, (Times{20}));
}

TEST(SimulatedCores, APreemptedProcessGoesOnAfterTheWokenOne) {
  for (const bool preempts : {false, true}) {
    SCOPED_TRACE(preempts);
    SimulatedCores cores(1, {.switch_ns = 2, .preempts = preempts}, 0);
    Scripted sleeper(cores, 0), waker(cores, 0), third(cores, 0);
    sleeper.sleep();
    sleeper.work(5, sleeper.note());
    waker.work(100, [&](TimeNs) { cores.wake(sleeper, waker.core()); });
    waker.work(100, waker.note());
    third.work(1, third.note());
    for (Scripted* each : {&sleeper, &waker, &third}) cores.start(*each);
    EXPECT_FALSE(cores.run_until(1'000));
    const TimeNs woke = 2 + 100;
    if (preempts) {
      EXPECT_EQ(sleeper.ended, (Times{woke + 2 + 5}));
      EXPECT_EQ(waker.ended, (Times{woke + 2 + 5 + 2 + 100}));
      EXPECT_EQ(third.ended, (Times{woke + 2 + 5 + 2 + 100 + 2 + 1}));
    } else {
      EXPECT_EQ(waker.ended, (Times{woke + 100}));
      EXPECT_EQ(third.ended, (Times{woke + 100 + 2 + 1}));
      EXPECT_EQ(sleeper.ended, (Times{woke + 100 + 2 + 1 + 2 + 5}));
    }
  }
}

TEST(SimulatedCores, ASystemCallIsNotPreempted) {
  SimulatedCores cores(1, {.preempts = true}, 0);
  Scripted sleeper(cores, 0), caller(cores, 0);
  sleeper.sleep();
  sleeper.work(5, sleeper.note());
  caller.work_in_call(100, [&](TimeNs) {
    cores.wake(sleeper, caller.core());
    caller.interrupt(30);
  });
  caller.work(100, caller.note());
  caller.work(100, caller.note());
  cores.start(sleeper);
  cores.start(caller);
  EXPECT_FALSE(cores.run_until(1'000));
  EXPECT_EQ(caller.ended, (Times{230, 335}));
  EXPECT_EQ(sleeper.ended, (Times{235}));
}

// A process that looked and found nothing sleeps before another has the core: later events wake it.
TEST(SimulatedCores, ASleepIsNotPutOff) {
  SimulatedCores cores(1, {.slice_ns = 10}, 0);
  Scripted one(cores, 0), other(cores, 0);
  one.work(20, [&](TimeNs) { one.sleep(one.note()); });
  other.work(5, [&](TimeNs) {
    EXPECT_TRUE(one.is_asleep());
    cores.wake(one, other.core());
  });
  cores.start(one);
  cores.start(other);
  EXPECT_FALSE(cores.run_until(1'000));
  EXPECT_EQ(one.ended, (Times{25}));
}

TEST(SimulatedCores, ATimeSliceEnds) {
  SimulatedCores cores(1, {.slice_ns = 25}, 0);
  Scripted one(cores, 0), other(cores, 0);
  for (int i = 0; i < 4; ++i) one.work(10, one.note());
  other.work(1, other.note());
  cores.start(one);
  cores.start(other);
  EXPECT_FALSE(cores.run_until(1'000));
  EXPECT_EQ(one.ended, (Times{10, 20, 30, 41}));
  EXPECT_EQ(other.ended, (Times{31}));
}

}  // namespace
}  // namespace offpath::tcp
