// Virtual time for links within one process. A fabric owns the time and operations under way. Events happen only in
// advance_to, and equal seeds and calls give equal runs. One thread.
//
// Read this first in src/testing/link, then loopback_link.h and loopback_connection.h (a link in virtual time),
// fault_link.h (its faults), connected_pair.h and raw_client.h (real sockets).
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "testing/link/seeded_random.h"

namespace offpath::link {

class LoopbackFabric {
 public:
  explicit LoopbackFabric(std::uint64_t seed, TimeNs start = 0) : random_(seed), now_(start) {}
  LoopbackFabric(const LoopbackFabric&) = delete;
  LoopbackFabric& operator=(const LoopbackFabric&) = delete;

  [[nodiscard]] TimeNs now() const noexcept { return now_; }
  // When something happens next; `never` if nothing is under way.
  [[nodiscard]] TimeNs next_event() const noexcept { return events_.empty() ? never : events_.front().at; }
  // Lets everything happen that is due until then, in order.
  void advance_to(TimeNs time);

  // The agents beside a host that waits: called with the time, runs the agents (never a host's end that
  // waits for another agent's step), returns when it wants to be called again; `never` if it only reacts.
  using Stepper = std::function<TimeNs(TimeNs now)>;
  void set_stepper(Stepper stepper) { stepper_ = std::move(stepper); }
  // While it lives, a host's end may wait within the stepper, as one does that connects to another agent: it sees links
  // work, and no agent steps meanwhile. Without it such a wait is a mistake of the simulation, and asserted.
  class WaitsWithinStep {
   public:
    explicit WaitsWithinStep(LoopbackFabric& fabric)
        : fabric_(fabric), before_(std::exchange(fabric.waits_within_step_, true)) {}
    ~WaitsWithinStep() { fabric_.waits_within_step_ = before_; }
    WaitsWithinStep(const WaitsWithinStep&) = delete;
    WaitsWithinStep& operator=(const WaitsWithinStep&) = delete;

   private:
    LoopbackFabric& fabric_;
    bool before_;
  };
  // Calls the stepper and advances, from event to event, until `done`, the deadline, or nothing is left to happen
  // before it. True if done. Time stands at the deadline if it passed, and stays where it is if the deadline is
  // `never`.
  bool run_until(TimeNs deadline, const std::function<bool()>& done);

  // To be given to channel::HostEnd: its context is the fabric.
  static TimeNs clock(void* fabric) { return static_cast<LoopbackFabric*>(fabric)->now(); }

  // For the links on it.
  void at(TimeNs time, std::function<void()> happen);
  [[nodiscard]] SeededRandom split_random() noexcept { return random_.split(); }

 private:
  struct Event {
    TimeNs at;
    std::uint64_t order;  // of posting: equal times keep it
    std::function<void()> happen;
  };
  static bool later(const Event& a, const Event& b) noexcept { return a.at != b.at ? a.at > b.at : a.order > b.order; }

  SeededRandom random_;
  TimeNs now_;
  std::vector<Event> events_;  // a heap, the next one first
  std::uint64_t posted_ = 0;
  Stepper stepper_;
  bool stepping_ = false;
  bool waits_within_step_ = false;
};

}  // namespace offpath::link
