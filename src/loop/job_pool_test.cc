#include "loop/job_pool.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <thread>

#ifndef __has_feature  // Clang's; GCC defines the others
#define __has_feature(name) 0
#endif
// Sanitizers replace pthread_create.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) && !__has_feature(thread_sanitizer) && \
    !__has_feature(address_sanitizer)
#define OFP_THREADS_CAN_FAIL
namespace {
std::atomic<bool> threads_fail = false;
}
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*begin)(void*),
                              void* argument) noexcept {
  static auto* const real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return threads_fail ? EAGAIN : real(thread, attributes, begin, argument);
}
#endif

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

TEST(JobPoolTest, ThreadsOnDemandBeginWithAJobAndEndWithoutOne) {
  auto loop = make_loop();
  std::atomic<int> running = 0, most = 0;
  JobPool jobs(*loop, {.threads = 2, .idle_end_ns = millisecond_ns});
  for (int round = 0; round < 3; ++round) {
    int done = 0;
    for (int i = 0; i < 8; ++i)
      jobs.start(
          [&] {
            most = std::max<int>(most, ++running);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            --running;
            return Status{};
          },
          [&](const Status& status, TimeNs) {
            EXPECT_TRUE(status);
            ++done;
          });
    while (done < 8) loop->round(monotonic_ns());
    EXPECT_LE(most, 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(round * 5));  // they have ended, or are about to
  }
  EXPECT_EQ(jobs.counters().failed, 0u);
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
  EXPECT_FALSE(loop->round(monotonic_ns()));  // the loop polls nothing of the pool any more
}

// A job that ends on request, like a write to a file whose lock another process holds.
class Held {
 public:
  JobPool::Run job() {
    return [this]() -> Status {
      begun_.fetch_add(1);
      go_.wait(false);
      back_.fetch_add(1);
      return {};
    };
  }
  void let_go() {
    go_ = true;
    go_.notify_all();
  }
  void await_back(int count) const {
    while (back_ < count) std::this_thread::yield();
  }
  [[nodiscard]] int begun() const { return begun_; }

 private:
  std::atomic<bool> go_ = false;
  std::atomic<int> begun_ = 0, back_ = 0;
};

constexpr JobPatience patience{.stand_in_after_ns = 5 * millisecond_ns,
                               .stand_ins_max = 2,
                               .give_up_after_ns = 20 * millisecond_ns,
                               .end_within_ns = millisecond_ns};

// The time passed to the loop: it stands still while other threads run, however slow they are.
TEST(JobPoolTest, JobsThatAreHeldFailAndOthersRun) {
  Held held;
  auto loop = make_loop();
  JobPool jobs(*loop, {.threads = 2, .patience = patience});
  int failed = 0, served = 0;
  for (int i = 0; i < 2; ++i) {
    jobs.start(held.job(), [&](Status status, TimeNs) {
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code, Error::timeout);
      ++failed;
    });
  }
  while (held.begun() < 2) std::this_thread::yield();
  TimeNs now = monotonic_ns();  // the pool has planned its first look at its threads, by this clock
  const auto serve = [&](int count) {
    served = 0;
    for (int i = 0; i < count; ++i) {
      jobs.start([]() -> Status { return {}; },
                 [&](Status status, TimeNs) {
                   EXPECT_TRUE(status);
                   ++served;
                 });
    }
    while (served < count) {
      loop->round(now);  // would repeat forever otherwise
      std::this_thread::yield();
    }
  };
  for (int i = 0; i < 6; ++i) loop->round(now += patience.stand_in_after_ns / 2);
  serve(10);
  EXPECT_EQ(failed, 0);
  while (failed < 2) loop->round(now += patience.stand_in_after_ns / 2);
  EXPECT_EQ(jobs.counters().given_up, 2u);
  held.let_go();
  held.await_back(2);
  serve(10);
  EXPECT_EQ(jobs.counters().finished, 22u) << "nobody hears again of those that were given up";
}

TEST(JobPoolTest, WhenAllStandInsAreHeldJobsFailInsteadOfWaitingForEver) {
  Held held;
  auto loop = make_loop();
  JobPool jobs(*loop, {.threads = 1, .patience = patience});
  int failed = 0;
  for (int i = 0; i < 5; ++i) {  // three threads in all
    jobs.start(held.job(), [&](Status status, TimeNs) {
      EXPECT_EQ(status.error().code, Error::timeout);
      if (++failed == 5) loop->stop();
    });
  }
  loop->run();
  while (held.begun() < 3) std::this_thread::yield();
  held.let_go();
  held.await_back(3);
}

TEST(JobPoolTest, AJobThatMakesProgressIsNotGivenUp) {
  auto loop = make_loop();
  TimeNs now = monotonic_ns();
  JobPool jobs(*loop, {.threads = 1, .patience = patience});
  constexpr int steps = 50;
  std::atomic<int> may = 0, made = 0;
  bool over = false;
  jobs.start(
      [&]() -> Status {
        while (made < steps) {
          while (may == made) std::this_thread::yield();
          JobPool::note_progress();
          ++made;
        }
        return {};
      },
      [&](Status status, TimeNs) {
        EXPECT_TRUE(status);
        over = true;
      });
  for (int i = 1; i <= steps; ++i) {
    may = i;
    while (made < i) std::this_thread::yield();
    loop->round(now += patience.give_up_after_ns / 2);
  }
  while (!over) loop->round(now);
  EXPECT_EQ(jobs.counters().given_up, 0u);
}

TEST(JobPoolTest, EndsThoughAJobNeverComesBack) {
  const auto held = std::make_shared<Held>();  // shared with the job
  auto loop = make_loop();
  {
    JobPool jobs(*loop, {.threads = 1, .patience = patience});
    jobs.start([held, run = held->job()] { return run(); }, [](Status, TimeNs) { FAIL(); });
    while (held->begun() == 0) std::this_thread::yield();
  }
  loop.reset();
  held->let_go();  // its pool and its loop no longer exist
  held->await_back(1);
}

// They may own files of a server that hangs: the thread that ends the pool does not wait for those.
TEST(JobPoolTest, JobsThatDidNotBeginAreDroppedByAWorker) {
  struct Owned {
    explicit Owned(std::atomic<int>& gone) : gone_(gone) {}
    ~Owned() {
      EXPECT_NE(std::this_thread::get_id(), here_);
      ++gone_;
    }
    std::atomic<int>& gone_;
    std::thread::id here_ = std::this_thread::get_id();
  };
  const auto held = std::make_shared<Held>();
  std::atomic<int> gone = 0;
  auto loop = make_loop();
  {
    JobPool jobs(*loop, {.threads = 1, .queue_max = 1, .patience = patience});
    jobs.start([held, run = held->job()] { return run(); }, [](Status, TimeNs) { FAIL(); });
    while (held->begun() == 0) std::this_thread::yield();
    for (int i = 0; i < 3; ++i)  // more than the queue has room for
      jobs.start([held, owned = std::make_shared<Owned>(gone), run = held->job()] { return run(); },
                 [](Status, TimeNs) { FAIL(); });
  }
  EXPECT_EQ(gone, 0);
  held->let_go();
  while (gone < 3) std::this_thread::yield();
  EXPECT_EQ(held->begun(), 1);
}

#ifdef OFP_THREADS_CAN_FAIL
TEST(JobPoolTest, WithoutAThreadJobsFailUntilThereIsOne) {
  auto loop = make_loop();
  std::vector<bool> outcomes;
  const auto note = [&](Status status, TimeNs) {
    if (!status) {
      EXPECT_EQ(status.error().code, Error::no_memory);
    }
    outcomes.push_back(status.has_value());
    loop->stop();
  };
  threads_fail = true;
  JobPool jobs(*loop, {.threads = 1});
  jobs.start([]() -> Status { return {}; }, note);
  loop->run();
  threads_fail = false;
  jobs.start([]() -> Status { return {}; }, note);
  loop->run();
  EXPECT_EQ(outcomes, (std::vector{false, true}));
}
#endif

}  // namespace
}  // namespace offpath::loop
