// One core of an agent with several, as its own process sees it: its listeners, its meeting with the other cores, and
// its end with the process that started it.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "agent/acceptor.h"
#include "agent/cores/core_ends.h"
#include "loop/loop.h"

namespace offpath::agent {

class ServedCore {
 public:
  // Makes it ready for programs. Returns where clients of Arrow Flight connect; empty: nowhere.
  using Serve = std::function<std::string()>;

  explicit ServedCore(CoreEnds ends) : ends_(std::move(ends)) {}
  ServedCore(const ServedCore&) = delete;
  ServedCore& operator=(const ServedCore&) = delete;

  [[nodiscard]] CoreEnds& ends() noexcept { return ends_; }
  [[nodiscard]] const CoreEnds& ends() const noexcept { return ends_; }

  [[nodiscard]] Status adopt_listeners(Acceptor& acceptor);
  void handed_ended() { ends_.loads->ended(ends_.core); }  // a connection that was handed to this core

  // Calls `serve` once, when `all_met` says that this core knows all others: a row that one of them has taken is then
  // found by all. After a few seconds it serves without them. The loop, which outlives this, stops when the process
  // that started this core has ended.
  [[nodiscard]] Status join(loop::Loop& loop, std::function<bool()> all_met, Serve serve);
  void members_changed();  // asks `all_met`

 private:
  void start_serving();

  CoreEnds ends_;
  std::function<bool()> all_met_;
  Serve serve_;  // empty once it was called
};

}  // namespace offpath::agent
