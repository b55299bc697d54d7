#include "testing/tcp/simulated_cores.h"

#include "base/status.h"

namespace offpath::tcp {

void SimulatedCores::wake(SimulatedProcess& process, std::size_t from) {
  if (process.state_ != SimulatedProcess::State::asleep) {
    process.was_woken_ = true;
    return;
  }
  if (from == process.core_) return make_ready(process, true);
  process.state_ = SimulatedProcess::State::waking;
  at(now_ + (from < cores_.size() ? costs_.wake_latency_ns : 0),
     [this, &process](TimeNs) { make_ready(process, true); });
}

void SimulatedCores::make_ready(SimulatedProcess& process, bool by_wake) {
  process.state_ = SimulatedProcess::State::ready;
  process.was_woken_ = false;
  Core& core = cores_[process.core_];
  const bool first = by_wake && costs_.preempts;
  if (first)
    core.ready.push_front(&process);
  else
    core.ready.push_back(&process);
  core.preempted |= first && core.running != nullptr;
  if (core.running == nullptr) dispatch(core);
}

// The core is free.
void SimulatedCores::dispatch(Core& core) {
  if (core.ready.empty()) return;
  SimulatedProcess& next = *core.ready.front();
  core.ready.pop_front();
  core.running = &next;
  core.preempted = false;
  next.state_ = SimulatedProcess::State::running;
  const bool switches = core.last != nullptr && core.last != &next;
  core.last = &next;
  core.since = now_ + (switches ? costs_.switch_ns : 0);
  at(core.since, [this, &core](TimeNs) { next_step(core); });
}

void SimulatedCores::next_step(Core& core) {
  SimulatedProcess& process = *core.running;
  if (process.steps_.empty()) process.go_on(now_);
  OFP_ASSERT(!process.steps_.empty());
  const SimulatedProcess::Step& step = process.steps_.front();
  OFP_ASSERT(step.ns >= 0);
  if (step.kind == SimulatedProcess::Step::sleeps) {
    const SimulatedProcess::Then then = step.then;
    process.steps_.pop_front();
    if (then) process.steps_.push_front({SimulatedProcess::Step::works, 0, then, false});  // when it goes on
    if (!std::exchange(process.was_woken_, false)) return leave(core, SimulatedProcess::State::asleep);
    return at(now_, [this, &core](TimeNs) { next_step(core); });
  }
  process.busy_ns_ += step.ns;
  core.busy_ns += step.ns;
  if (on_work_ && step.ns > 0)
    on_work_({static_cast<std::size_t>(&core - cores_.data()), &process, now_, now_ + step.ns});
  at(now_ + step.ns, [this, &core](TimeNs) { end_step(core); });
}

void SimulatedCores::end_step(Core& core) {
  SimulatedProcess& process = *core.running;
  const SimulatedProcess::Step step = std::move(process.steps_.front());
  process.steps_.pop_front();
  process.in_call_ = step.in_call;
  if (step.then) step.then(now_);
  const bool gives_way =
      step.kind == SimulatedProcess::Step::yields || core.preempted || now_ - core.since >= costs_.slice_ns;
  // A sleep follows at once on the look before it, as a wake in between would be for a process that is awake.
  const bool sleeps = !process.steps_.empty() && process.steps_.front().kind == SimulatedProcess::Step::sleeps;
  if (gives_way && !step.in_call && !sleeps && !core.ready.empty()) return leave(core, SimulatedProcess::State::ready);
  next_step(core);
}

// One that was preempted is the next after the process that was woken.
void SimulatedCores::leave(Core& core, SimulatedProcess::State state) {
  SimulatedProcess& process = *core.running;
  process.state_ = state;
  core.running = nullptr;
  if (state == SimulatedProcess::State::ready) {
    if (core.preempted)
      core.ready.insert(core.ready.begin() + 1, &process);
    else
      core.ready.push_back(&process);
  }
  dispatch(core);
}

bool SimulatedCores::run_until(TimeNs time) {
  while (!events_.empty() && events_.top().time <= time) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    event.what(now_);
  }
  now_ = std::max(now_, time);
  return !events_.empty();
}

}  // namespace offpath::tcp
