// Requests and puts that wait until their pool is ready. Each is served by the function that served it first, which
// may defer it again.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "service/effects.h"

namespace offpath::sift {

class DeferredRequests {
 public:
  using Serve = std::function<void(TimeNs now, service::Effects& effects)>;

  void add(Serve serve) { waiting_.push_back(std::move(serve)); }
  // Behind those that wait here already.
  void add(DeferredRequests others) {
    for (Serve& each : others.waiting_) waiting_.push_back(std::move(each));
  }
  // Serves those that wait now, in their order. `this` may be gone afterwards.
  void serve(TimeNs now, service::Effects& effects) {
    for (const Serve& each : std::exchange(waiting_, {})) each(now, effects);
  }
  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }

 private:
  std::vector<Serve> waiting_;
};

}  // namespace offpath::sift
