// Processes on the cores of a machine, in virtual time: each core does one thing at a time, and a step takes the time
// that its process says. For tests, and for offpath bench tcp --part cores.
//
//   a process  asks for steps: work for so long, a yield, a sleep. When it has none left, it is asked for the next
//   a core     runs one process until that sleeps, yields, was preempted or has used up its time slice. A switch to
//              another process takes time
//   a wake     of a process that sleeps on another core: it goes on after `wake_latency_ns`. On the waker's core it
//              waits for its turn; with `preempts` it is the next after the waker's present step or system call
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace offpath::tcp {

struct SchedulerCosts {
  TimeNs wake_latency_ns = 0;  // until a process that was woken from another core goes on
  TimeNs switch_ns = 0;        // from one process to another one on a core
  TimeNs slice_ns = 3 * millisecond_ns;
  bool preempts = false;  // a process that is woken comes before the one that runs
};

class SimulatedCores;

class SimulatedProcess {
 public:
  using Then = std::function<void(TimeNs now)>;

  SimulatedProcess(SimulatedCores& cores, std::size_t core) : cores_(cores), core_(core) {}
  virtual ~SimulatedProcess() = default;
  SimulatedProcess(const SimulatedProcess&) = delete;
  SimulatedProcess& operator=(const SimulatedProcess&) = delete;

  [[nodiscard]] std::size_t core() const noexcept { return core_; }
  [[nodiscard]] bool is_asleep() const noexcept { return state_ == State::asleep; }
  [[nodiscard]] TimeNs busy_ns() const noexcept { return busy_ns_; }  // time of its core so far
  // Work before the steps that it has asked for already, such as that of a wake within one of them.
  void interrupt(TimeNs ns) { steps_.push_front({Step::works, ns, {}, in_call_}); }

 protected:
  // Called when it has no step left: asks for at least one.
  virtual void go_on(TimeNs now) = 0;

  // Steps are done in the order of these calls. `then` is called at a step's end.
  void work(TimeNs ns, Then then = {}) { steps_.push_back({Step::works, ns, std::move(then), false}); }
  // Of a system call that goes on with the next step: the core is taken from nobody in between.
  void work_in_call(TimeNs ns, Then then) { steps_.push_back({Step::works, ns, std::move(then), true}); }
  void yield(TimeNs ns) { steps_.push_back({Step::yields, ns, {}, false}); }
  // Until a wake. One that came since the process last ran a sleep ends it at once.
  void sleep(Then then = {}) { steps_.push_back({Step::sleeps, 0, std::move(then), false}); }

 private:
  friend class SimulatedCores;
  struct Step {
    enum Kind : std::uint8_t { works, yields, sleeps } kind;
    TimeNs ns;
    Then then;
    bool in_call;
  };
  enum class State : std::uint8_t { ready, running, asleep, waking };

  SimulatedCores& cores_;
  std::size_t core_;
  State state_ = State::ready;
  bool was_woken_ = false;  // while awake
  bool in_call_ = false;    // of the step that ends
  std::deque<Step> steps_;
  TimeNs busy_ns_ = 0;
};

class SimulatedCores {
 public:
  // A time in which a core ran a process, without switches.
  struct Worked {
    std::size_t core;
    const SimulatedProcess* process;
    TimeNs begin, end;
  };

  SimulatedCores(std::size_t count, const SchedulerCosts& costs, TimeNs begin = second_ns)
      : costs_(costs), cores_(count), now_(begin) {}

  // It is ready from now on, and outlives the last run().
  void start(SimulatedProcess& process) { make_ready(process, false); }
  // By a process that runs on core `from`. Nothing happens to a process that does not sleep, except that its next
  // sleep ends at once.
  void wake(SimulatedProcess& process, std::size_t from);
  // By no process, such as a timer.
  void wake(SimulatedProcess& process) { wake(process, cores_.size()); }
  void at(TimeNs time, std::function<void(TimeNs now)> what) {
    events_.push({std::max(time, now_), ++last_, std::move(what)});
  }
  // Everything up to this time. False: every process sleeps, and nothing will ever wake one.
  bool run_until(TimeNs time);

  [[nodiscard]] std::size_t count() const noexcept { return cores_.size(); }
  [[nodiscard]] TimeNs now() const noexcept { return now_; }
  [[nodiscard]] TimeNs busy_ns(std::size_t core) const noexcept { return cores_[core].busy_ns; }
  void watch(std::function<void(const Worked&)> on_work) { on_work_ = std::move(on_work); }

 private:
  struct Core {
    SimulatedProcess *running = nullptr, *last = nullptr;
    std::deque<SimulatedProcess*> ready;
    bool preempted = false;
    TimeNs since = 0;  // the running process has the core
    TimeNs busy_ns = 0;
  };
  struct Event {
    TimeNs time;
    std::uint64_t order;
    std::function<void(TimeNs now)> what;
    friend bool operator<(const Event& one, const Event& other) noexcept {
      return std::pair(one.time, one.order) > std::pair(other.time, other.order);  // the first one on top
    }
  };

  void make_ready(SimulatedProcess& process, bool by_wake);
  void dispatch(Core& core);
  void next_step(Core& core);
  void end_step(Core& core);
  void leave(Core& core, SimulatedProcess::State state);

  SchedulerCosts costs_;
  std::vector<Core> cores_;
  std::priority_queue<Event> events_;
  std::uint64_t last_ = 0;
  TimeNs now_;
  std::function<void(const Worked&)> on_work_;
};

}  // namespace offpath::tcp
