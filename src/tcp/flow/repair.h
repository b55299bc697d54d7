// State of a recovery: the amount that may leave while losses are repaired, and the state to restore if nothing was
// lost. A flow has one from its first loss on.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "tcp/congestion/congestion.h"
#include "tcp/segment/sequence.h"

namespace offpath::tcp {

// Proportional rate reduction (RFC 9937, which replaces RFC 6937): the window shrinks to its target while data arrives,
// not at once. If more was lost than the target allows for, it grows to the target by slow start (PRR-SSRB).
class ProportionalRate {
 public:
  // `flight`: bytes on their way when the recovery began. `target`: the window when it ends.
  void begin(std::uint32_t flight, std::uint32_t target) noexcept {
    arrived_ = sent_ = 0;
    flight_ = std::max(flight, 1u);
    target_ = target;
  }
  void sent(std::uint32_t bytes) noexcept { sent_ += bytes; }
  // The window after an acknowledgement. `arrived`: bytes it newly reports. `safe`: it reports progress and no loss.
  [[nodiscard]] std::uint32_t window(std::uint32_t in_flight, std::uint32_t arrived, bool safe,
                                     std::uint32_t mss) noexcept {
    arrived_ += arrived;
    std::uint64_t allowed = 0;
    if (in_flight > target_) {
      const std::uint64_t due = (std::uint64_t{arrived_} * target_ + flight_ - 1) / flight_;
      allowed = due > sent_ ? due - sent_ : 0;
    } else {
      allowed = std::max<std::uint64_t>(arrived_ > sent_ ? arrived_ - sent_ : 0, arrived) + (safe ? mss : 0);
      allowed = std::min<std::uint64_t>(allowed, target_ - in_flight);
    }
    if (sent_ == 0) allowed = std::max<std::uint64_t>(allowed, mss);  // the first retransmission
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(in_flight + allowed, congestion_window_max));
  }
  [[nodiscard]] std::uint32_t target() const noexcept { return target_; }

 private:
  std::uint32_t arrived_ = 0, sent_ = 0, flight_ = 1, target_ = 0;
};

// F-RTO (RFC 5682): was a timeout spurious? Only without timestamps, which decide at once (RFC 3522).
enum class TimeoutTrial : std::uint8_t {
  none,
  first_answer,  // the first segment was sent again; an acknowledgement beyond it is followed by new data
  new_data       // up to two new segments are sent; an acknowledgement of more old data proves that it was not lost
};

struct Repair {
  ProportionalRate rate{};
  Congestion before{};  // when it began
  TimeNs began = 0;
  Sequence from{}, until{};    // data in flight then
  Sequence expires{};          // undoing ends when this is acknowledged
  Sequence first{};            // of the first retransmission
  std::uint32_t first_ms = 0;  // when that left, in the clock of timestamps
  std::uint32_t resent = 0;    // bytes sent again, minus those reported as duplicates
  SequenceRange reported{};    // the last of these
  std::uint32_t trial_sent = 0;
  TimeoutTrial trial = TimeoutTrial::none;
  bool may_undo = false;        // `before` may still be restored
  bool trusts_reports = false;  // counts reports of data that arrived twice, which may show that nothing was lost
  bool asks_echo = false;       // the acknowledgement of the first retransmission has not come
  bool by_timeout = false;
  bool of_probe = false;  // only a probe (path_search.h), `from` to `until`, was lost

  void begin_of_probe(SequenceRange probe) noexcept {
    *this = {};
    from = probe.begin;
    until = probe.end;
    of_probe = true;
  }
  void begin(const Congestion& congestion, Sequence una, Sequence next, bool timeout, TimeNs now) noexcept {
    // Reports of earlier retransmissions would count for this recovery.
    const bool alone = resent == 0 || una >= until;
    *this = {};
    before = congestion;
    began = now;
    from = first = una;
    until = next;
    may_undo = true;
    trusts_reports = alone;
    by_timeout = timeout;
  }
  void sent_again(SequenceRange what, std::uint32_t timestamp) noexcept {
    if (resent == 0) {
      first = what.begin;
      first_ms = timestamp;
      asks_echo = true;
    }
    resent += what.bytes();
    rate.sent(what.bytes());
  }
};
static_assert(sizeof(Repair) <= 120);

}  // namespace offpath::tcp
