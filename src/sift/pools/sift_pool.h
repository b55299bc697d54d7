// The state of one sift pool in the service (sift_service.h).
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "service/effects.h"
#include "sift/agreement.h"
#include "sift/definition.h"
#include "sift/flush_rounds.h"
#include "sift/kept/kept_store.h"
#include "sift/pools/deferred_requests.h"
#include "sift/sift.h"

namespace offpath::sift {

// A pool of the service: its Sift, the agreement on its definition, and its kept objects.
struct SiftPool {
  static constexpr std::size_t replaced_max = 16;

  std::string name, text, reference;  // the definition, and its reference in messages of members (definition.h)
  uid_t user = 0;
  std::shared_ptr<const std::vector<std::byte>> object{};  // the definition as sent to members; null: not sent yet
  Settings settings;
  std::unique_ptr<Sift> sift;
  Agreement agreement;
  FlushRounds flushes;                // flushes for which programs of this agent wait
  std::unique_ptr<KeptStore> kept{};  // null: nothing is kept
  // References to definitions with other members, or other ranges of a sample, that it replaced: the newest.
  std::deque<std::string> replaced{};
  bool learnt = false;  // its ranges
  Effects pending{};    // effects of `sift` that are not carried out
  bool carrying = false;
  DeferredRequests deferred{};  // until the pool is ready

  // The text names a definition that this one has replaced.
  [[nodiscard]] bool has_replaced(std::string_view other) const {
    return !replaced.empty() && std::ranges::find(replaced, reference_to(other)) != replaced.end();
  }
  // Its members have agreed on it, and the objects from before a restart are back.
  [[nodiscard]] bool is_ready() const noexcept { return agreement.is_agreed() && sift->is_restored(); }
  // True: it is not ready, and `serve` is called when it is. Members would answer requests to a pool without agreement
  // as if it had agreement. Fails if there will be none.
  [[nodiscard]] Result<bool> defer(DeferredRequests::Serve serve, TimeNs now) {
    if (is_ready()) return false;
    if (!agreement.is_agreed()) OFP_TRY(agreement.may_put(now));
    deferred.add(std::move(serve));
    return true;
  }
  [[nodiscard]] bool is_idle() const noexcept { return kept == nullptr || kept->is_idle(); }
  [[nodiscard]] TimeNs next_deadline() const noexcept {
    return std::min({sift->next_deadline(), agreement.next_deadline(), kept ? kept->next_deadline() : never});
  }
};

}  // namespace offpath::sift
