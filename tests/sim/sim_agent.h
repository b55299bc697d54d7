// An agent as the simulations need one: the real dispatcher and services, jobs run at a later virtual time.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "agent/services/dispatcher.h"
#include "testing/link/loopback_link.h"

namespace offpath::sim {

class SimAgent {
 public:
  SimAgent(std::shared_ptr<link::LoopbackFabric> fabric, const agent::DispatcherOptions& options)
      : fabric_(std::move(fabric)), dispatcher_(options, [this](std::uint64_t token, std::function<Status()> run) {
          jobs_.emplace_back(token, std::move(run));
        }) {
    fabric_->set_stepper([this](TimeNs now) { return step(now); });
  }
  ~SimAgent() { fabric_->set_stepper({}); }

  [[nodiscard]] agent::Dispatcher& dispatcher() noexcept { return dispatcher_; }

  TimeNs step(TimeNs now) {
    if (!runs) return never;
    if (!jobs_.empty()) {
      auto [token, run] = std::move(jobs_.front());
      jobs_.pop_front();
      dispatcher_.on_job(token, run(), now);
    }
    const bool did = dispatcher_.poll(now);
    if (!did && jobs_.empty() && dispatcher_.fall_asleep(now))
      return std::min(dispatcher_.next_deadline(), now + tick_ns);
    return now + 200;  // a round of the loop
  }

  // Lets the agent and the links work for a while.
  void run_for(TimeNs duration) {
    fabric_->run_until(fabric_->now() + duration, [] { return false; });
  }

  bool runs = true;
  // Links that hold events back (fault_link) let them out by the clock, as their descriptor would in a real loop.
  TimeNs tick_ns = 50 * microsecond_ns;

 private:
  std::shared_ptr<link::LoopbackFabric> fabric_;
  std::deque<std::pair<std::uint64_t, std::function<Status()>>> jobs_;
  agent::Dispatcher dispatcher_;
};

}  // namespace offpath::sim
