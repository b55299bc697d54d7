// RFC 9438. Windows are bytes here and segments there; times are seconds.
#include <algorithm>
#include <cmath>

#include "tcp/congestion/congestion_algorithms.h"

namespace offpath::tcp {
namespace {

constexpr double scaling = 0.4, kept = 0.7;                  // C and beta, 4.6 and 5
constexpr double reno_growth = 3 * (1 - kept) / (1 + kept);  // 4.3
constexpr double growth_of_a_round_max = 1.5;                // 4.2

void begin_epoch(Congestion& congestion, const Acknowledged& what) noexcept {
  CubicState& own = congestion.own.cubic;
  own.epoch_at = std::max<TimeNs>(what.now, 1);
  own.reno_window = congestion.window;
  own.origin = std::max(own.window_most, congestion.window);
  own.seconds_to_origin = static_cast<float>(std::cbrt((own.origin - congestion.window) / double(what.mss) / scaling));
}

// The curve counts only time in which the window was the limit (RFC 9438, 5.8).
void leave_out_unused(CubicState& own, TimeNs now) noexcept {
  if (own.unused_since == 0) return;
  if (own.epoch_at != 0) own.epoch_at += now - own.unused_since;
  own.unused_since = 0;
}

}  // namespace

void Cubic::on_acknowledged(Congestion& congestion, const Acknowledged& what) const noexcept {
  const bool first = is_first_start(congestion);  // the state is another algorithm's
  if (!window_was_used(congestion, what)) {
    if (CubicState& own = congestion.own.cubic; !first && own.unused_since == 0) own.unused_since = what.now;
    return;
  }
  const std::uint32_t bytes = slow_start(congestion, what);
  if (!is_first_start(congestion)) leave_out_unused(congestion.own.cubic, what.now);
  if (bytes == 0) return;
  CubicState& own = congestion.own.cubic;
  if (own.epoch_at == 0) begin_epoch(congestion, what);
  const double window = congestion.window;
  const double seconds = double(what.now - own.epoch_at + what.smoothed_rtt_ns) / second_ns - own.seconds_to_origin;
  const double curve = own.origin + scaling * seconds * seconds * seconds * what.mss;
  const double target = std::clamp(curve, window, growth_of_a_round_max * window);
  const double reno = own.reno_window + reno_growth * bytes * what.mss / window;
  own.reno_window = static_cast<std::uint32_t>(std::min<double>(reno, congestion_window_max));
  const double grown = window + (target - window) * bytes / window;
  congestion.window = static_cast<std::uint32_t>(
      std::clamp<double>(std::max<double>(grown, own.reno_window), window, congestion_window_max));
}

void Cubic::on_loss(Congestion& congestion, std::uint32_t in_flight, std::uint32_t mss, TimeNs) const noexcept {
  if (is_first_start(congestion)) congestion.own = {};
  CubicState& own = congestion.own.cubic;
  // A window below the one before the last loss yields to other flows sooner (4.7, fast convergence).
  const bool less = congestion.window < own.window_most;
  own.window_most = less ? static_cast<std::uint32_t>(congestion.window * (1 + kept) / 2) : congestion.window;
  // A window that was the limit counts in full: after a repair little is in flight, and a second loss may be detected
  // before the window is filled again (4.6; RFC 7661).
  const std::uint32_t used =
      own.unused_since == 0 ? congestion.window : std::min(congestion.window, std::max(in_flight, mss));
  own.epoch_at = own.unused_since = 0;
  congestion.threshold = std::max(static_cast<std::uint32_t>(used * kept), 2 * mss);
  congestion.window = congestion.threshold;
}

void Cubic::on_idle(Congestion& congestion, std::uint32_t mss, TimeNs idle_ns, TimeNs timeout_ns) const noexcept {
  CubicState& own = congestion.own.cubic;
  if (!is_first_start(congestion) && own.epoch_at != 0 && own.unused_since == 0) own.epoch_at += idle_ns;
  CongestionControl::on_idle(congestion, mss, idle_ns, timeout_ns);
}

void Cubic::undo(Congestion& congestion, const Congestion& before, std::uint32_t in_flight, std::uint32_t mss,
                 TimeNs ago_ns) const noexcept {
  CongestionControl::undo(congestion, before, in_flight, mss, ago_ns);
  CubicState& own = congestion.own.cubic;
  if (is_first_start(congestion)) return;
  if (own.epoch_at != 0) own.epoch_at += ago_ns;
  if (own.unused_since != 0) own.unused_since += ago_ns;
}

}  // namespace offpath::tcp
