// The delay after which a segment counts as lost: RACK's reordering window (RFC 8985, 6.2, step 4). A quarter of the
// shortest round trip; one quarter more for each round trip in which the peer reports by DSACK (RFC 2883) that a
// retransmission was needless, until sixteen recoveries have passed without such a report.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "tcp/segment/sequence.h"

namespace offpath::tcp {

class ReorderWindow {
 public:
  static constexpr std::uint8_t recoveries_kept = 16, quarters_max = 250;
  static constexpr std::uint32_t shortest_kept_s = 300;

  // A round trip was measured: once in a round trip.
  void add(TimeNs round_trip_ns, TimeNs now) noexcept {
    const auto us = static_cast<std::uint32_t>(std::clamp<TimeNs>(round_trip_ns / microsecond_ns, 1, 600'000'000));
    const auto now_s = static_cast<std::uint32_t>(now / second_ns);
    if (shortest_us_ != 0 && us > shortest_us_ && now_s - shortest_at_s_ < shortest_kept_s) return;
    shortest_us_ = us;
    shortest_at_s_ = now_s;
  }
  // A segment that was sent once has arrived after later ones.
  void saw_reordering() noexcept { seen_ = true; }
  // Data arrived twice, so a declared loss was wrong. Counts once in a round trip.
  void widen(Sequence una, Sequence next) noexcept {
    seen_ = true;
    if (widened_ && una < widened_until_) return;
    widened_ = true;
    widened_until_ = next;
    quarters_ = std::min<std::uint8_t>(quarters_ + 1, quarters_max);
    left_ = recoveries_kept;
  }
  // A recovery is over.
  void recovered() noexcept {
    if (left_ > 0 && --left_ == 0) quarters_ = 1;
  }

  // Order alone proves no loss on this path.
  [[nodiscard]] bool seen() const noexcept { return seen_; }
  // `never`: no round trip was measured. The handshake's round trip is used until one of data was measured.
  [[nodiscard]] TimeNs window_ns(TimeNs smoothed_rtt_ns) const noexcept {
    if (smoothed_rtt_ns == 0) return never;
    const TimeNs shortest = shortest_us_ != 0 ? shortest_us_ * microsecond_ns : smoothed_rtt_ns;
    return std::min(quarters_ * shortest / 4, smoothed_rtt_ns);
  }

 private:
  std::uint32_t shortest_us_ = 0, shortest_at_s_ = 0;
  Sequence widened_until_{};
  std::uint8_t quarters_ = 1, left_ = 0;
  bool seen_ = false, widened_ = false;
};
static_assert(sizeof(ReorderWindow) == 16);

}  // namespace offpath::tcp
