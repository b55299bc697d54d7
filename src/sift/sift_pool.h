// The state of one sift pool in the service (sift_service.h), and of one that is still to be made.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "service/effects.h"
#include "sift/agreement.h"
#include "sift/flush_rounds.h"
#include "sift/kept/kept_store.h"
#include "sift/sift.h"

namespace offpath::sift {

using DeferredRequest = std::function<void(TimeNs now, service::Effects& effects)>;

// A pool of the service: its Sift, the agreement on its definition, and its kept objects.
struct SiftPool {
  std::string name, text;
  uid_t user = 0;
  Settings settings;
  std::unique_ptr<Sift> sift;
  Agreement agreement;
  FlushRounds flushes;                // flushes for which programs of this agent wait
  std::unique_ptr<KeptStore> kept{};  // null: nothing is kept
  std::set<std::string> replaced{};   // definitions with other members that it replaced
  Effects pending{};                  // effects of `sift` that are not carried out
  bool carrying = false;
  std::vector<DeferredRequest> deferred{};  // requests that wait until the pool is ready

  // Its members have agreed on it, and the objects from before a restart are back.
  [[nodiscard]] bool is_ready() const noexcept { return agreement.is_agreed() && sift->is_restored(); }
  [[nodiscard]] bool is_idle() const noexcept { return kept == nullptr || kept->is_idle(); }
  [[nodiscard]] TimeNs next_deadline() const noexcept {
    return std::min({sift->next_deadline(), agreement.next_deadline(), kept ? kept->next_deadline() : never});
  }
};

// A pool that will be made when enough members live.
struct AwaitedPool {
  std::string text;
  uid_t user;
  std::vector<DeferredRequest> deferred{};
};

}  // namespace offpath::sift
