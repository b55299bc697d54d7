#include "tcp/congestion/congestion.h"

#include <algorithm>
#include <array>

#include "tcp/congestion/congestion_algorithms.h"
#include "tcp/congestion/hystart.h"

namespace offpath::tcp {

void CongestionControl::begin(Congestion& congestion, std::uint32_t mss, TimeNs) const noexcept {
  congestion = {};
  congestion.window = initial_window_segments * mss;
  congestion.threshold = congestion_window_max;
}

void CongestionControl::take_over(Congestion& congestion) const noexcept {
  congestion.rate = 0;
  congestion.own = {};
}

void CongestionControl::on_timeout(Congestion& congestion, std::uint32_t in_flight, std::uint32_t mss, bool first,
                                   TimeNs now) const noexcept {
  if (first) on_loss(congestion, in_flight, mss, now);
  congestion.window = mss;
}

// RFC 5681, 4.1: after a retransmission timeout's time the window is the initial one. Slow start leads back to three
// quarters of the old one, as far as that was in use.
void CongestionControl::on_idle(Congestion& congestion, std::uint32_t mss, TimeNs idle_ns,
                                TimeNs timeout_ns) const noexcept {
  const std::uint32_t restart = initial_window_segments * mss;
  if (idle_ns < timeout_ns || congestion.rate != 0 || congestion.window <= restart) return;  // paced flows send no
                                                                                             // burst
  if (!is_first_start(congestion))
    congestion.threshold = std::max(congestion.threshold, congestion.window - congestion.window / 4);
  congestion.window = restart;
}

void CongestionControl::undo(Congestion& congestion, const Congestion& before, std::uint32_t in_flight,
                             std::uint32_t mss, TimeNs) const noexcept {
  const std::uint32_t window = congestion.window;
  congestion = before;
  if (before.rate != 0 || window >= before.window) {
    congestion.window = std::max(window, before.window);
    return;
  }
  const std::uint64_t next = std::uint64_t{in_flight} + std::uint64_t{initial_window_segments} * mss;
  congestion.window = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(next, window, before.window));
  congestion.threshold = std::max(before.threshold, before.window);
}

std::uint32_t slow_start(Congestion& congestion, const Acknowledged& what) noexcept {
  if (congestion.window >= congestion.threshold) return what.bytes;
  if (is_first_start(congestion)) {
    constexpr std::uint32_t conservative_divisor = 4;
    const StartPhase phase = hystart(congestion.own.start, what);
    if (phase != StartPhase::over) {
      const std::uint32_t grown = phase == StartPhase::conservative ? what.bytes / conservative_divisor : what.bytes;
      congestion.window = std::min(congestion.window + grown, congestion_window_max);
      return 0;
    }
    congestion.threshold = congestion.window;
    congestion.own = {};
    return what.bytes;
  }
  const std::uint32_t grown = std::min(what.bytes, congestion.threshold - congestion.window);
  congestion.window = std::min(congestion.window + grown, congestion_window_max);
  return what.bytes - grown;
}

Result<std::unique_ptr<const CongestionControl>> congestion_control(std::string_view name) {
  if (name == "new_reno") return std::make_unique<NewReno>();
  if (name == "cubic") return std::make_unique<Cubic>();
  if (name == "dctcp") return std::make_unique<Dctcp>();
  if (name == "timely") return std::make_unique<Timely>();
  return fail(Error::invalid, "unknown congestion control '{}'; known are new_reno, cubic, dctcp and timely",
              brief(name));
}

const CongestionControl& congestion_control(wire::TcpCongestion kind) noexcept {
  static const NewReno new_reno;
  static const Cubic cubic;
  static const Dctcp dctcp;
  static const Timely timely;
  static const std::array<const CongestionControl*, 4> all{&new_reno, &cubic, &dctcp, &timely};
  return *all[static_cast<std::size_t>(kind) - 1];
}

}  // namespace offpath::tcp
