// The site's program that is run for alarms: one at a time, in order, each with a time limit. After the time limit it
// is killed with all its child processes. The agent never waits for it.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "loop/loop.h"

namespace offpath::agent {

class AlarmHook {
 public:
  static constexpr std::size_t waiting_max = 1024;                       // beyond this the oldest are dropped
  using Environment = std::vector<std::pair<std::string, std::string>>;  // added to the agent's own

  struct Counters {
    std::uint64_t runs = 0, failures = 0, left_out = 0;
  };

  // `command`: program and arguments, found by its path or in PATH; empty: nothing is run.
  AlarmHook(loop::Loop& loop, std::vector<std::string> command, TimeNs limit_ns);
  ~AlarmHook();  // kills the running hook
  AlarmHook(const AlarmHook&) = delete;
  AlarmHook& operator=(const AlarmHook&) = delete;

  void tell(Environment environment, TimeNs now);
  void on_time(TimeNs now);
  [[nodiscard]] TimeNs next_deadline() const noexcept { return process_ ? killed_at_ : never; }
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }

 private:
  void start_next(TimeNs now);
  void on_ended(TimeNs now);
  void kill_group();

  loop::Loop& loop_;
  std::vector<std::string> command_;
  TimeNs limit_ns_;
  std::deque<Environment> waiting_;
  pid_t pid_ = 0;
  Fd process_;  // pidfd of the running hook
  TimeNs killed_at_ = never;
  bool killed_ = false;
  Counters counters_;
};

}  // namespace offpath::agent
