// The site's program that is told of alarms: one at a time, in their order, each with a time limit. What does not end
// in time is killed with all it started. The agent waits for none of it.
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
  static constexpr std::size_t waiting_max = 1024;                       // beyond these the oldest are left out
  using Environment = std::vector<std::pair<std::string, std::string>>;  // added to the agent's own

  struct Counters {
    std::uint64_t runs = 0, failures = 0, left_out = 0;
  };

  // `command`: program and arguments, found by its path or in PATH; empty: nothing is ever run.
  AlarmHook(loop::Loop& loop, std::vector<std::string> command, TimeNs limit_ns);
  ~AlarmHook();  // kills what runs
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
  Fd process_;  // pidfd of what runs
  TimeNs killed_at_ = never;
  bool killed_ = false;
  Counters counters_;
};

}  // namespace offpath::agent
