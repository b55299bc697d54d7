// Virtual time of a world: once nothing happens any more, it advances to the next due time. For tests.
#pragma once

#include <algorithm>
#include <functional>

#include "base/clock.h"

namespace offpath::tcp {

class VirtualTime {
 public:
  virtual ~VirtualTime() = default;

  // Everybody acts until nothing happens at this time; then the time advances to the next event. False: nothing ever
  // does.
  bool step(TimeNs until, const std::function<bool()>& act) {
    for (int i = 0; i < 100'000; ++i) {
      const bool acted = act();
      if (!poll() && !acted && !has_frames()) break;
    }
    const TimeNs next = next_deadline();
    if (next > until) {
      now = std::max(now, until);
      return next != never;
    }
    now = std::max(now + 1, next);
    return true;
  }
  bool run_until(
      const std::function<bool()>& done, TimeNs limit, const std::function<bool()>& act = [] { return false; }) {
    const TimeNs until = now + limit;
    while (!done()) {
      if (now >= until) return false;
      if (!step(until, act)) return done();
    }
    return true;
  }
  void run(TimeNs duration) {
    run_until([] { return false; }, duration);
  }

  TimeNs now = second_ns;

 private:
  virtual bool poll() = 0;                            // whether anything happened
  [[nodiscard]] virtual bool has_frames() const = 0;  // on their way
  [[nodiscard]] virtual TimeNs next_deadline() const = 0;
};

}  // namespace offpath::tcp
