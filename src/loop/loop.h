// One event loop, for one core. Its thread owns the state that it polls. Other threads reach it by a Mailbox
// (mailbox.h), and long work leaves it by a JobPool (job_pool.h).
//
// The order of one round, and why:
//   1. descriptors   a look at epoll, at most every `look_every` while busy, because it is the one system call of a
//                    busy round; nothing urgent arrives this way (rings are polled)
//   2. pollers       in the order they were added; the program that adds them writes down why (src/agent/agent.cc)
//   3. timers        last, so that events before a deadline are served before the deadline is judged,
//                    also after the process was stopped for a while and everything is late at the same time
//
// A round that did something is immediately followed by the next one. After `spin` without any work (less after a few
// rounds of work, which are rarely the first of many; immediately if no poller expects more) each poller is asked to
// fall asleep: it arranges to be woken by a descriptor, or refuses. If all agree the loop sleeps in epoll until a
// descriptor is ready, a Waker wakes it, or the next deadline has come.
//
// Read this first in src/loop, then spin.h, turns.h, timers.h, job_pool.h, mailbox.h and waker.h.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "loop/timers.h"
#include "loop/turns.h"
#include "loop/waker.h"

namespace offpath::loop {

class Poller {
 public:
  virtual ~Poller() = default;
  // True if it did something.
  virtual bool poll(TimeNs now) = 0;
  // Arranges to be woken by a watched descriptor or a Waker; false: it cannot be woken, poll it again. After a wake,
  // poll is called first.
  virtual bool fall_asleep(TimeNs now) = 0;
  [[nodiscard]] virtual TimeNs next_deadline() const { return never; }  // when to be polled although nothing happened
  // After a poll that did something: whether more is likely to follow soon, so that the loop spins before it sleeps.
  [[nodiscard]] virtual bool expects_more() const { return true; }
};

struct LoopOptions {
  TimeNs spin_ns = millisecond_ns;
  TimeNs look_every_ns = 50 * microsecond_ns;
  bool limited = false;  // a quota of processor time may stop this process (turns.h)
};

// Times of this loop's thread. `overhead` is the time of rounds outside pollers, estimated from every 64th round.
struct LoopCounters {
  std::uint64_t rounds = 0, busy_rounds = 0, sleeps = 0, naps = 0, looks = 0, descriptors_ready = 0, timers_fired = 0;
  std::int64_t busy_ns = 0, spinning_ns = 0, asleep_ns = 0, overhead_ns = 0;
  std::int64_t longest_round_ns = 0;
};

class Loop {
 public:
  using OnReady = std::function<void(std::uint32_t events, TimeNs now)>;

  [[nodiscard]] static Result<std::unique_ptr<Loop>> make(const LoopOptions& options);
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void add(Poller& poller) { pollers_.push_back(&poller); }  // at the end of the order
  void remove(Poller& poller) { std::erase(pollers_, &poller); }

  enum class After : bool { sleep, spin };  // what the loop does after the call if it has no other work
  // Level triggered. Without `on_ready` the descriptor only wakes the loop, and a poller finds the cause.
  [[nodiscard]] Status watch(int fd, std::uint32_t events, OnReady on_ready = {}, After after = After::spin);
  [[nodiscard]] Status watch_for(int fd, std::uint32_t events);  // changes the events of a watched descriptor
  void unwatch(int fd) noexcept;                                 // also from within on_ready; best before it is closed

  [[nodiscard]] Timers& timers() noexcept { return timers_; }
  [[nodiscard]] Waker& waker() noexcept { return waker_; }

  void run();                                 // until stop()
  void stop() noexcept { stopping_ = true; }  // the loop's thread only

  bool round(TimeNs now);  // one round, true if it did something
  // Sleeps if every poller agrees, at most until `deadline`. False if one did not agree.
  bool sleep(TimeNs now, TimeNs deadline = never);

  [[nodiscard]] const LoopCounters& counters() const noexcept { return counters_; }

 private:
  struct Watch {
    std::uint64_t number;  // identifies the watch in epoll, because descriptors are reused
    OnReady on_ready;
    After after;
  };
  Loop(const LoopOptions& options, Fd epoll, Waker waker) noexcept
      : options_(options), epoll_(std::move(epoll)), waker_(std::move(waker)), turns_(options.limited) {}
  bool look(TimeNs now, TimeNs wait);
  TimeNs make_way(TimeNs now);
  [[nodiscard]] int wait_for_events(std::span<epoll_event> events, TimeNs wait);

  LoopOptions options_;
  Fd epoll_;
  Waker waker_;
  Timers timers_;
  std::vector<Poller*> pollers_;
  std::unordered_map<int, Watch> watches_;
  std::unordered_map<std::uint64_t, int> watched_;  // number -> descriptor
  std::uint64_t next_watch_ = 1;
  TimeNs next_look_ = 0;
  Turns turns_;
  TimeNs clock_cost_ns_ = 0;
  bool expects_more_ = false;  // one of the last rounds did something after which more is likely
  bool stopping_ = false;
  bool whole_nanoseconds_ = true;  // epoll_pwait2 exists
  LoopCounters counters_;
};

}  // namespace offpath::loop
