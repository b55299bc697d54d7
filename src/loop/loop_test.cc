#include "loop/loop.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

#include "loop/mailbox.h"
#include "loop/spin.h"
#include "testing/cpu_time.h"
#include "testing/link/emulated.h"

namespace offpath::loop {
namespace {

std::unique_ptr<Loop> make_loop(const LoopOptions& options = {}) {
  auto loop = Loop::make(options);
  EXPECT_TRUE(loop.has_value());
  return std::move(*loop);
}

struct Pipe {
  Fd out, in;
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    out = Fd(ends[0]);
    in = Fd(ends[1]);
  }
  void put() { EXPECT_EQ(write(in.get(), "x", 1), 1); }
  void take() {
    char byte = 0;
    EXPECT_EQ(read(out.get(), &byte, 1), 1);
  }
};

struct Recorder : Poller {
  std::string& log;
  char name;
  bool work = false, sleepy = true;
  TimeNs deadline = never;
  Recorder(std::string& log_to, char letter) : log(log_to), name(letter) {}
  bool poll(TimeNs) override {
    log += name;
    return work;
  }
  bool fall_asleep(TimeNs) override {
    log += static_cast<char>(name - 'a' + 'A');
    return sleepy;
  }
  TimeNs next_deadline() const override { return deadline; }
};

TEST(LoopTest, ARoundIsDescriptorsThenPollersThenTimers) {
  auto loop = make_loop();
  std::string log;
  Recorder first(log, 'a'), second(log, 'b');
  loop->add(first);
  loop->add(second);
  Pipe pipe;
  pipe.put();
  ASSERT_TRUE(loop->watch(pipe.out.get(), EPOLLIN, [&](std::uint32_t events, TimeNs) {
    EXPECT_TRUE(events & EPOLLIN);
    log += 'd';
    pipe.take();
  }));
  loop->timers().start(100, [&](TimeNs, TimeNs) { log += 't'; });
  EXPECT_TRUE(loop->round(100));
  EXPECT_EQ(log, "dabt");
  EXPECT_FALSE(loop->round(101));
  EXPECT_EQ(log, "dabtab");
  EXPECT_EQ(loop->counters().rounds, 2u);
  EXPECT_EQ(loop->counters().busy_rounds, 1u);
}

// A process that was stopped finds its input and its timers due at the same time.
TEST(LoopTest, InputThatCameBeforeALateTimerIsServedFirst) {
  auto loop = make_loop();
  std::string log;
  Pipe pipe;
  ASSERT_TRUE(loop->watch(pipe.out.get(), EPOLLIN, [&](std::uint32_t, TimeNs) {
    log += 'd';
    pipe.take();
  }));
  loop->round(1000);  // looks at epoll: the next look would be later
  Timers::Id deadline = loop->timers().start(1001, [&](TimeNs, TimeNs) { log += 't'; });
  pipe.put();
  ASSERT_TRUE(loop->watch_for(pipe.out.get(), EPOLLIN));
  loop->round(1002);
  EXPECT_EQ(log, "dt");
  EXPECT_FALSE(loop->timers().cancel(deadline));
}

TEST(LoopTest, ADescriptorMayBeUnwatchedWhileOthersAreReady) {
  auto loop = make_loop();
  std::array<Pipe, 3> pipes;
  int calls = 0;
  for (Pipe& pipe : pipes) {
    pipe.put();
    ASSERT_TRUE(loop->watch(pipe.out.get(), EPOLLIN, [&](std::uint32_t, TimeNs) {
      ++calls;
      for (Pipe& each : pipes) loop->unwatch(each.out.get());
    }));
  }
  loop->round(1);
  loop->round(1'000'000);
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(loop->watch_for(pipes[0].out.get(), EPOLLIN));
}

TEST(LoopTest, ADescriptorThatIsClosedAndUsedAgainIsWatchedAnew) {
  auto loop = make_loop();
  int calls = 0;
  for (int i = 0; i < 3; ++i) {
    Pipe pipe;
    pipe.put();
    ASSERT_TRUE(loop->watch(pipe.out.get(), EPOLLIN, [&](std::uint32_t, TimeNs) { ++calls; }));
    loop->round(i * millisecond_ns);
    if (i != 1) loop->unwatch(pipe.out.get());  // after forget
  }
  EXPECT_EQ(calls, 3);
}

TEST(LoopTest, SleepsOnlyIfAllAgree) {
  auto loop = make_loop();
  std::string log;
  Recorder first(log, 'a'), second(log, 'b');
  loop->add(first);
  loop->add(second);
  first.sleepy = false;
  EXPECT_FALSE(loop->sleep(monotonic_ns()));
  EXPECT_EQ(log, "A");
  first.sleepy = true;
  const TimeNs now = monotonic_ns();
  second.deadline = now + millisecond_ns;
  EXPECT_TRUE(loop->sleep(now));
  EXPECT_EQ(log, "AAB");
  EXPECT_GE(monotonic_ns(), second.deadline);
  EXPECT_EQ(loop->counters().sleeps, 1u);
}

TEST(LoopTest, ADescriptorWakesIt) {
  auto loop = make_loop();
  Pipe pipe;
  ASSERT_TRUE(loop->watch(pipe.out.get(), EPOLLIN));
  pipe.put();
  EXPECT_TRUE(loop->sleep(monotonic_ns()));  // would block otherwise
  EXPECT_EQ(loop->counters().descriptors_ready, 1u);
}

TEST(LoopTest, RunsTimersAndStops) {
  auto loop = make_loop();
  TimeNs began = monotonic_ns(), second_due = began + 3 * millisecond_ns;
  int calls = 0;
  loop->timers().start(began + millisecond_ns, [&](TimeNs, TimeNs) {
    loop->timers().start(second_due, [&](TimeNs now, TimeNs due) {
      EXPECT_GE(now, due);
      ++calls;
      loop->stop();
    });
    ++calls;
  });
  loop->run();
  EXPECT_EQ(calls, 2);
  EXPECT_GE(monotonic_ns(), second_due);
}

TEST(LoopTest, AnIdleLoopUsesNoProcessor) {
  auto loop = make_loop();
  std::string log;
  Recorder idle(log, 'a');
  loop->add(idle);
  loop->timers().start(monotonic_ns() + 400 * millisecond_ns, [&](TimeNs, TimeNs) { loop->stop(); });
  const TimeNs before = thread_cpu_ns();
  loop->run();
  EXPECT_LT(thread_cpu_ns() - before, 40 * millisecond_ns);  // a tenth, where spinning would take all of it
  EXPECT_GT(loop->counters().asleep_ns, loop->counters().spinning_ns);
}

// A poller whose work is done with one poll.
struct Once final : Poller {
  bool poll(TimeNs now) override {
    ++polls;
    if (due) worked_at = now;
    return std::exchange(due, false);
  }
  bool fall_asleep(TimeNs now) override {
    awake_least_ns = std::min(awake_least_ns, now - worked_at);
    return true;
  }
  [[nodiscard]] bool expects_more() const override { return more; }
  bool due = false, more = false;
  unsigned polls = 0;
  TimeNs worked_at = 0, awake_least_ns = never;  // after work, before it falls asleep
};

// Runs the loop while it works so often. Each time begins when its predecessor has come, so that the loop is idle in
// between, however late they are. The function is called after each.
void work_apart(Loop& loop, Once& once, unsigned times, const std::function<void(unsigned done)>& after) {
  unsigned done = 0;
  std::function<void()> start_one = [&] {
    loop.timers().start(monotonic_ns() + 2 * millisecond_ns, [&](TimeNs, TimeNs) {
      after(done);
      once.due = true;
      if (done++ == times) return loop.stop();
      start_one();
    });
  };
  loop.add(once);
  start_one();
  loop.run();
}

constexpr unsigned few_polls = 6;  // of a piece of work and the sleep after it

TEST(LoopTest, DoesNotSpinAfterWorkThatNoMoreFollows) {
  auto loop = make_loop({.spin_ns = 100 * microsecond_ns});
  Once once;
  work_apart(*loop, once, 20, [](unsigned) {});
  EXPECT_LT(once.polls, 20 * few_polls);
}

TEST(LoopTest, SpinsAfterWorkUntilThatHasBeenInVainForATime) {
  auto loop = make_loop({.spin_ns = 100 * microsecond_ns});
  Once once;
  once.more = true;
  TimeNs least_ns = 0;
  unsigned looked = 0;
  work_apart(*loop, once, 2 * Spin::vain_max, [&](unsigned done) {
    if (done == 1) once.awake_least_ns = never;  // it sleeps before there was any work
    if (done == Spin::vain_max) least_ns = once.awake_least_ns, looked = once.polls;
  });
  EXPECT_GE(least_ns, 100 * microsecond_ns) << "it looks for what may follow";
  EXPECT_LT(once.polls - looked, Spin::vain_max * few_polls);
}

TEST(LoopTest, ABusyLoopDoesNotSleep) {
  auto loop = make_loop();
  struct Busy : Poller {
    int left = 1000;
    Loop* loop;
    bool poll(TimeNs) override {
      if (--left == 0) loop->stop();
      return true;
    }
    bool fall_asleep(TimeNs) override { return true; }
  } busy;
  busy.loop = loop.get();
  loop->add(busy);
  loop->run();
  EXPECT_EQ(loop->counters().sleeps, 0u);
  EXPECT_EQ(loop->counters().busy_rounds, 1000u);
}

// Ends only if the loop naps: it stops after ten.
TEST(LoopTest, NapsWhileAnotherThreadComputesOnItsCore) {
  cpu_set_t before{}, one{};
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int core = 0;
  while (!CPU_ISSET(core, &before)) ++core;
  CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);  // also for the thread that is started
  std::atomic<bool> over{false};
  std::thread computing([&] {
    while (!over.load(std::memory_order_relaxed)) {
    }
  });
  auto loop = make_loop({.spin_ns = 1000 * second_ns});
  struct : Poller {
    Loop* loop = nullptr;
    bool poll(TimeNs) override {
      if (loop->counters().naps >= 10) loop->stop();
      return false;
    }
    bool fall_asleep(TimeNs) override { return false; }
  } poller;
  poller.loop = loop.get();
  loop->add(poller);
  loop->run();
  over = true;
  computing.join();
  EXPECT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(loop->counters().sleeps, 0u);
  EXPECT_GT(loop->counters().asleep_ns, 0);
}

// It spins for as long as the options say, here longer than any test takes, unless a quota stops it.
TEST(LoopTest, SleepsSoonAfterAQuotaHasStoppedIt) {
  struct Stopped final : Poller {
    explicit Stopped(Loop& of) : loop(of) {}
    bool poll(TimeNs) override {
      ++polls;
      if (polls == 100) std::this_thread::sleep_for(std::chrono::nanoseconds(2 * Turns::taken_ns));
      if (polls == 10'000) loop.stop();
      return polls < 50;  // after many rounds that worked it spins for all of the time
    }
    bool fall_asleep(TimeNs) override {
      fell_asleep = true;
      loop.stop();
      return false;
    }
    Loop& loop;
    unsigned polls = 0;
    bool fell_asleep = false;
  };
  for (const bool limited : {true, false}) {
    auto loop = make_loop({.spin_ns = 1000 * second_ns, .limited = limited});
    Stopped poller(*loop);
    loop->add(poller);
    loop->run();
    EXPECT_EQ(poller.fell_asleep, limited);
  }
}

// In a child whose seccomp filter answers as such a kernel does, or as an old container's filter.
void wait_without_epoll_pwait2(int error) {
  const pid_t child = fork();
  if (child == 0) {
    sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{std::size(lines), lines};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
      _exit(2);
    auto loop = Loop::make({});
    if (!loop) _exit(3);
    bool is_early = false;
    int timers = 0;
    std::function<void()> start_one = [&] {
      ++timers;
      (*loop)->timers().start(monotonic_ns() + 20 * millisecond_ns + 1, [&](TimeNs now, TimeNs due) {
        is_early = is_early || now < due;
        // It does not sleep if this process had no core until the timer was due.
        if ((*loop)->counters().sleeps > 0) return (*loop)->stop();
        start_one();
      });
    };
    start_one();
    (*loop)->run();
    _exit(!is_early && (*loop)->counters().sleeps < 10u * static_cast<unsigned>(timers) ? 0 : 4);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(LoopTest, AKernelWithoutEpollPwait2WaitsWholeMilliseconds) {
  OFP_NEEDS_KERNEL("seccomp");
  for (const int error : {ENOSYS, EPERM}) {
    SCOPED_TRACE(error);
    wait_without_epoll_pwait2(error);
  }
}

}  // namespace
}  // namespace offpath::loop
