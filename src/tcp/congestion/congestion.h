// Congestion control: how many bytes may be in flight, and how fast they may leave. Each flow keeps a few words of
// state for its algorithm; the algorithms are stateless, and one object serves all flows.
//
// A window (bytes in flight) bounds every flow. A rate (bytes a second) paces it; algorithms that set a rate also set a
// window, somewhat larger than what that rate sends in a round trip.
//
// Read this first, then congestion_algorithms.h, then one file for each algorithm.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "wire/areas/tcp_congestion.h"

namespace offpath::tcp {

// Of a connection's first slow start (hystart.h).
struct StartState {
  std::uint32_t round_bytes;               // to be acknowledged until the round is over
  std::uint32_t previous_us, shortest_us;  // shortest round trips: of the last round; 0: not known; of this one
  std::uint32_t baseline_us;               // when they had become longer
  std::uint8_t samples, rounds;            // of this round; conservative ones
  bool is_conservative;
};

struct CubicState {
  TimeNs epoch_at;            // when the window began to grow; 0: not yet
  TimeNs unused_since;        // since when the window has not been the limit; 0: it is the limit
  std::uint32_t window_most;  // bytes, at the last loss
  std::uint32_t origin;       // bytes, at the curve's plateau
  std::uint32_t reno_window;  // bytes that Reno would allow by now
  float seconds_to_origin;
};

struct DctcpState {
  std::uint32_t acknowledged, marked;  // bytes acknowledged in this round trip
  TimeNs round_began;
  float share;  // smoothed share of marked bytes: alpha
};

struct TimelyState {
  TimeNs previous_rtt, smallest_rtt;
  float difference_ns;    // smoothed
  std::uint32_t falling;  // round trips in a row in which delay did not grow
  TimeNs next_at;         // of the next update, once in a round trip
};

struct Congestion {
  std::uint32_t window = 0;     // bytes
  std::uint32_t threshold = 0;  // bytes: below it, slow start
  std::uint64_t rate = 0;       // bytes a second; 0: not paced
  union Own {
    CubicState cubic;
    StartState start;  // of NewReno and CUBIC, in the first slow start
    DctcpState dctcp;
    TimelyState timely;
  } own{};
};
static_assert(sizeof(Congestion) <= 48);

// The report of an acknowledgement.
struct Acknowledged {
  std::uint32_t bytes = 0;      // newly acknowledged
  std::uint32_t marked = 0;     // of `bytes`: reported as marked by a router
  std::uint32_t in_flight = 0;  // before this acknowledgement
  std::uint32_t mss = 0;
  TimeNs rtt_ns = 0;  // measured by this acknowledgement; 0: not measured
  TimeNs smoothed_rtt_ns = 0;
  TimeNs now = 0;
  TimeNs delay_ns = 0;  // a round trip by the peer's timestamps, in milliseconds; in slow start only; 0: not known
};

class CongestionControl {
 public:
  virtual ~CongestionControl() = default;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  [[nodiscard]] virtual wire::TcpCongestion kind() const noexcept = 0;
  [[nodiscard]] virtual bool wants_ecn() const noexcept { return false; }
  virtual void begin(Congestion& congestion, std::uint32_t mss, TimeNs now) const noexcept;
  // A connection changes to this algorithm. Its window and threshold stay.
  virtual void take_over(Congestion& congestion) const noexcept;
  // Not called while a loss is being repaired, except after a timeout.
  virtual void on_acknowledged(Congestion& congestion, const Acknowledged& what) const noexcept = 0;
  // Called once for each window of data in which a loss was detected.
  virtual void on_loss(Congestion& congestion, std::uint32_t in_flight, std::uint32_t mss,
                       TimeNs now) const noexcept = 0;
  // The retransmission timer has fired. `first`: the first of a series.
  virtual void on_timeout(Congestion& congestion, std::uint32_t in_flight, std::uint32_t mss, bool first,
                          TimeNs now) const noexcept;
  // Nothing was sent for `idle_ns`: the path may carry less by now. `timeout_ns`: of a retransmission.
  virtual void on_idle(Congestion& congestion, std::uint32_t mss, TimeNs idle_ns, TimeNs timeout_ns) const noexcept;
  // A declared loss was wrong. `before`: the state then, `ago_ns` ago. The part of the window that is not in flight
  // returns by slow start, so that no burst leaves (RFC 4015, 5).
  virtual void undo(Congestion& congestion, const Congestion& before, std::uint32_t in_flight, std::uint32_t mss,
                    TimeNs ago_ns) const noexcept;
};

inline constexpr std::uint32_t initial_window_segments = 10;  // RFC 6928
inline constexpr std::uint32_t congestion_window_max = 1u << 30;

// `name`: new_reno, cubic, dctcp or timely.
[[nodiscard]] Result<std::unique_ptr<const CongestionControl>> congestion_control(std::string_view name);
// Not of `agents`.
[[nodiscard]] const CongestionControl& congestion_control(wire::TcpCongestion kind) noexcept;

[[nodiscard]] inline bool is_first_start(const Congestion& congestion) noexcept {
  return congestion.threshold == congestion_window_max;
}
// Slow start below the threshold (RFC 5681); the first one, with HyStart++. Returns the acknowledged bytes beyond it.
[[nodiscard]] std::uint32_t slow_start(Congestion& congestion, const Acknowledged& what) noexcept;
// Only a window that was fully used may grow (RFC 7661).
[[nodiscard]] inline bool window_was_used(const Congestion& congestion, const Acknowledged& what) noexcept {
  const std::uint64_t used =
      congestion.window < congestion.threshold ? 2ull * what.in_flight : what.in_flight + 2ull * what.mss;
  return used >= congestion.window;
}

}  // namespace offpath::tcp
