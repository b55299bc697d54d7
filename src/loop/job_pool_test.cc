#include "loop/job_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <stdexcept>
#include <thread>

namespace offpath::loop {
namespace {

std::unique_ptr<Loop> make_loop() {
  auto loop = Loop::make({.spin_ns = 10 * microsecond_ns});
  EXPECT_TRUE(loop.has_value());
  return std::move(*loop);
}

TEST(JobPoolTest, RunsElsewhereAndReportsHere) {
  auto loop = make_loop();
  JobPool jobs(*loop, {.threads = 1});
  std::thread::id here = std::this_thread::get_id(), there;
  jobs.start(
      [&]() -> Status {
        there = std::this_thread::get_id();
        return fail(Error::no_space, "disk full");
      },
      [&](Status status, TimeNs) {
        EXPECT_EQ(std::this_thread::get_id(), here);
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().code, Error::no_space);
        EXPECT_EQ(status.error().message, "disk full");
        loop->stop();
      });
  loop->run();
  EXPECT_NE(there, here);
  EXPECT_EQ(jobs.counters().finished, 1u);
  EXPECT_EQ(jobs.counters().failed, 1u);
}

TEST(JobPoolTest, BeyondTheQueueJobsWaitInTheLoopAndNoneIsLost) {
  constexpr int count = 2000;
  auto loop = make_loop();
  JobPool jobs(*loop, {.threads = 3, .queue_max = 2});
  std::atomic<int> run{0};
  std::vector<int> done;
  for (int i = 0; i < count; ++i) {
    jobs.start(
        [&]() -> Status {
          run.fetch_add(1, std::memory_order_relaxed);
          return {};
        },
        [&, i](Status status, TimeNs) {
          EXPECT_TRUE(status.has_value());
          done.push_back(i);
          if (done.size() == count) loop->stop();
        });
  }
  EXPECT_GT(jobs.counters().waiting, 0u);
  loop->run();
  EXPECT_EQ(run.load(), count);
  std::ranges::sort(done);
  for (int i = 0; i < count; ++i) ASSERT_EQ(done[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(jobs.counters().waiting, 0u);
  EXPECT_EQ(jobs.counters().finished, static_cast<std::uint64_t>(count));
}

TEST(JobPoolTest, AJobMayStartTheNextOneFromItsResult) {
  auto loop = make_loop();
  JobPool jobs(*loop, {.threads = 2, .queue_max = 1});
  int left = 500;
  std::function<void()> start_one = [&] {
    jobs.start([]() -> Status { return {}; },
               [&](Status, TimeNs) {
                 if (--left == 0) {
                   loop->stop();
                 } else {
                   start_one();
                 }
               });
  };
  start_one();
  loop->run();
  EXPECT_EQ(left, 0);
}

TEST(JobPoolTest, AJobThatThrowsFailsAlone) {
  auto loop = make_loop();
  JobPool jobs(*loop, {.threads = 1});
  std::vector<Error> errors;
  auto note = [&](Status status, TimeNs) {
    ASSERT_FALSE(status);
    errors.push_back(status.error().code);
    if (errors.size() == 2) loop->stop();
  };
  jobs.start([]() -> Status { throw std::bad_alloc(); }, note);
  jobs.start([]() -> Status { throw std::runtime_error("surprise"); }, note);
  loop->run();
  EXPECT_EQ(errors, (std::vector{Error::no_memory, Error::io}));
}

TEST(JobPoolTest, EndsWithJobsUnderWayAndWaiting) {
  auto loop = make_loop();
  std::atomic<int> run{0};
  int done = 0;
  {
    JobPool jobs(*loop, {.threads = 2, .queue_max = 4});
    for (int i = 0; i < 100; ++i) {
      jobs.start(
          [&]() -> Status {
            run.fetch_add(1);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            return {};
          },
          [&](Status, TimeNs) { ++done; });
    }
  }
  EXPECT_LT(run.load(), 100);
  EXPECT_EQ(done, 0);
  EXPECT_FALSE(loop->round(monotonic_ns()));  // nothing of the pool is polled any more
}

}  // namespace
}  // namespace offpath::loop
