#include "testing/link/loopback_fabric.h"

#include <algorithm>
#include <utility>

namespace offpath::link {

void LoopbackFabric::at(TimeNs time, std::function<void()> happen) {
  events_.push_back({std::max(time, now_), posted_++, std::move(happen)});
  std::push_heap(events_.begin(), events_.end(), later);
}

void LoopbackFabric::advance_to(TimeNs time) {
  OFP_ASSERT(time >= now_);
  while (!events_.empty() && events_.front().at <= time) {
    std::pop_heap(events_.begin(), events_.end(), later);
    const Event event = std::move(events_.back());
    events_.pop_back();
    now_ = event.at;
    event.happen();
  }
  now_ = time;
}

bool LoopbackFabric::run_until(TimeNs deadline, const std::function<bool()>& done) {
  OFP_ASSERT(!stepping_ || waits_within_step_);
  for (;;) {
    if (done()) return true;
    TimeNs next = never;
    if (stepper_ && !stepping_) {
      stepping_ = true;
      next = stepper_(now_);
      next = std::max(next, now_ + 1);  // which the step may have moved on
      stepping_ = false;
      if (done()) return true;
    }
    next = std::min(next, next_event());
    if (next > deadline || next == never) {
      if (deadline != never) advance_to(std::max(deadline, now_));
      return done();
    }
    advance_to(next);
  }
}

}  // namespace offpath::link
