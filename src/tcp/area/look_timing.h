// When the agent looks for a program's commands over a link. A look is a read, so one that finds nothing should be
// rare, and a program that gives a command should not wait for a look.
//
// Commands follow events that the agent has written (an answer, or more bytes where there is room again), earlier
// commands (more of a stream), and a process's `sleep` (another thread, a timer). How long each of these takes is
// learnt: the next look begins then. If it finds nothing, further ones follow at growing distances. Where no command is
// expected within the limit there is no look: the agent says that it sleeps, and the program wakes it.
//
//   events --- wait ---> look: nothing --> look: nothing -- one look's time --> look: an answer
//
// A look that found commands at the expected time may have come late. So the wait is shortened after several of them,
// until one comes too early, and halved where more than one command was found or a stream goes on.
//
// Where nothing but a `sleep` came the last time, the agent says at the expected time that it sleeps: the look that
// has to follow finds the command.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/backoff.h"

namespace offpath::tcp {

class LookTiming {
 public:
  // A command that comes later wakes the agent. A wake takes as long as a few reads.
  static constexpr TimeNs limit_min_ns = 50 * microsecond_ns, limit_max_ns = 500 * microsecond_ns;
  static constexpr TimeNs reads_of_a_wake = 4;

  // The agent writes events; acknowledgements: nothing but these.
  void wrote(bool acknowledgements, TimeNs now) noexcept {
    const After after = acknowledgements ? After::acknowledgements : After::events;
    if (open_ && after_ <= after) return;  // events may follow each other faster than answers
    if (open_ && misses_ > 0) learn(after_ == After::sleep ? never : now - since_);
    const TimeNs earlier = next_;
    begin(after, now);
    next_ = std::min(next_, earlier);
  }
  // The program has woken the agent, which looks now.
  void woken(TimeNs now) noexcept {
    learn(now - since_);
    learnt_ = open_ = true;
    since_ = next_ = now;
    misses_ = 0;
  }
  void began(TimeNs now) noexcept {
    began_ = now;
    next_ = never;
  }
  // The result of a look.
  struct Found {
    std::size_t commands;  // apart from those below
    bool payload;          // whose offer is still to come
    bool sleeps;           // the last one says so
  };
  void found(const Found& found, TimeNs now) noexcept {
    measure(now);
    const After next = found.sleeps ? After::sleep : After::commands;
    if (since_ > began_) {  // events were written after it had begun
      next_ = std::min(next_, waits_[index(next)].until(now));
      return;
    }
    Wait& wait = waits_[index(after_)];
    const bool sleeps = found.commands == 0 && !found.payload;
    if (!learnt_ && (!open_ || misses_ > 0))
      learn(began_ - since_);
    else if (!learnt_ && !sleeps)
      shorten(wait, found.commands > 1 || after_ == After::commands);
    wait.sleeps = sleeps && after_ != After::events;
    begin(next, now);
  }
  void missed(TimeNs now) noexcept {
    measure(now);
    if (!open_ || since_ > began_) return;
    ++misses_;
    next_ = misses_ == 1 ? now : now + backoff_ns(look_ns_, misses_ - 2, second_ns);
    if (next_ - since_ <= limit()) return;
    if (!learnt_) learn(never);
    rest();
  }
  // The program wakes the agent for the next command.
  void rest() noexcept {
    open_ = false;
    next_ = never;
  }

  // Whether a command is expected soon.
  [[nodiscard]] bool expects() const noexcept { return open_; }
  // When the next look is due.
  [[nodiscard]] TimeNs next() const noexcept { return next_; }
  // When the agent may say that it sleeps: events that are about to be written may say it as well.
  [[nodiscard]] TimeNs rests_at() const noexcept {
    const Wait& wait = waits_[index(after_)];
    if (open_) return wait.sleeps && next_ == never ? wait.until(since_) : never;
    return after_ <= After::acknowledgements ? since_ : since_ + look_ns_;
  }

 private:
  enum class After : std::uint8_t { events, acknowledgements, commands, sleep };
  struct Wait {
    TimeNs ns = 0;  // never: not within the limit
    bool sleeps = false;
    unsigned on_time = 0;
    [[nodiscard]] TimeNs until(TimeNs from) const noexcept { return ns == never ? never : from + ns; }
  };
  static constexpr unsigned on_time_max = 16;

  [[nodiscard]] static constexpr std::size_t index(After after) noexcept { return static_cast<std::size_t>(after); }
  [[nodiscard]] TimeNs limit() const noexcept {
    return std::clamp(reads_of_a_wake * look_ns_, limit_min_ns, limit_max_ns);
  }
  void measure(TimeNs now) noexcept {
    const TimeNs took = std::max<TimeNs>(now - began_, 1);
    look_ns_ = look_ns_ == 0 ? took : look_ns_ + (took - look_ns_) / 8;
  }
  void begin(After after, TimeNs now) noexcept {
    const Wait& wait = waits_[index(after)];
    after_ = after;
    since_ = now;
    misses_ = 0;
    learnt_ = false;
    open_ = wait.ns != never;
    next_ = wait.sleeps ? never : wait.until(now);
  }
  void learn(TimeNs took) noexcept { waits_[index(after_)] = {.ns = took <= limit() ? took : never}; }
  static void shorten(Wait& wait, bool much) noexcept {
    if (much)
      wait.ns /= 2;
    else if (wait.on_time == on_time_max)
      wait.ns -= wait.ns / 8;
    else
      ++wait.on_time;
  }

  std::array<Wait, 4> waits_{Wait{}, Wait{}, Wait{}, Wait{.ns = never}};
  After after_ = After::commands;
  TimeNs since_ = 0, next_ = 0, began_ = 0;
  TimeNs look_ns_ = 0;   // how long a look takes, smoothed
  unsigned misses_ = 0;  // looks since then that found nothing
  bool open_ = true;     // a command is expected within the limit
  bool learnt_ = true;   // how long it took is not to be learnt: a wake has shown it, or nothing was written yet
};

// How long a read takes on the link alone: the shortest look of a window, because longer ones waited for payload or for
// the agent's loop. Any shorter look counts at once. Only looks that waited for no other transfer make it longer, and
// only several of them.
class ReadTime {
 public:
  static constexpr TimeNs window_ns = second_ns, first_most_ns = 10 * millisecond_ns;
  static constexpr unsigned samples_least = 8;

  // `is_alone`: no other transfer was under way when the look began.
  void add(TimeNs took, bool is_alone, TimeNs now) noexcept {
    took = std::max<TimeNs>(took, 1);
    if (ns_ == 0) {
      ns_ = std::min(took, first_most_ns);
      window_end_ = now + window_ns;
    }
    ns_ = std::min(ns_, took);
    if (!is_alone) return;
    shortest_ = std::min(shortest_, took);
    if (++samples_ < samples_least || now < window_end_) return;
    ns_ = shortest_;
    shortest_ = never;
    samples_ = 0;
    window_end_ = now + window_ns;
  }
  [[nodiscard]] TimeNs ns() const noexcept { return ns_; }  // 0: not measured yet

 private:
  TimeNs ns_ = 0, shortest_ = never, window_end_ = 0;
  unsigned samples_ = 0;  // of this window
};

}  // namespace offpath::tcp
