// Congestion control: how much may be in flight, and how fast it may leave. What algorithms know of a flow is a few
// words in the flow; the algorithms themselves have no state, and one object serves all flows.
//
// A window (bytes in flight) bounds every flow. A rate (bytes a second) spaces what leaves; algorithms that go by rate
// set both, the window then being what the rate needs in a round trip, and some more.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace offpath::tcp {

struct CubicState {
  TimeNs epoch_at;            // since when the window grows; 0: not yet
  std::uint32_t window_most;  // bytes, before the last loss
  std::uint32_t origin;       // bytes, where the curve is flat
  std::uint32_t reno_window;  // bytes that Reno would have by now
  float seconds_to_origin;
};

struct DctcpState {
  std::uint32_t acknowledged, marked;  // bytes of this round trip
  TimeNs round_began;
  float share;  // of bytes that were marked, smoothed: alpha
};

struct TimelyState {
  TimeNs previous_rtt, smallest_rtt;
  float difference_ns;    // smoothed
  std::uint32_t falling;  // round trips in a row in which delay did not grow
  TimeNs next_at;         // once in a round trip
};

struct Congestion {
  std::uint32_t window = 0;     // bytes
  std::uint32_t threshold = 0;  // bytes: below it, slow start
  std::uint64_t rate = 0;       // bytes a second; 0: not paced
  union Own {
    CubicState cubic;
    DctcpState dctcp;
    TimelyState timely;
  } own{};
};
static_assert(sizeof(Congestion) <= 48);

// What an acknowledgement told.
struct Acknowledged {
  std::uint32_t bytes = 0;      // newly
  std::uint32_t marked = 0;     // of them, reported as having met congestion
  std::uint32_t in_flight = 0;  // before it
  std::uint32_t mss = 0;
  TimeNs rtt_ns = 0;  // measured by it; 0: not
  TimeNs smoothed_rtt_ns = 0;
  TimeNs now = 0;
};

class CongestionControl {
 public:
  virtual ~CongestionControl() = default;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  [[nodiscard]] virtual bool wants_ecn() const noexcept { return false; }
  virtual void begin(Congestion& congestion, std::uint32_t mss, TimeNs now) const noexcept;
  // Not called while a loss is being repaired, but for what follows a timeout.
  virtual void on_acknowledged(Congestion& congestion, const Acknowledged& what) const noexcept = 0;
  // A loss was found, once for each window of data.
  virtual void on_loss(Congestion& congestion, std::uint32_t in_flight, std::uint32_t mss,
                       TimeNs now) const noexcept = 0;
  // Nothing came back for a retransmission timeout. `first`: not in a row.
  virtual void on_timeout(Congestion& congestion, std::uint32_t in_flight, std::uint32_t mss, bool first,
                          TimeNs now) const noexcept;
};

inline constexpr std::uint32_t initial_window_segments = 10;  // RFC 6928
inline constexpr std::uint32_t congestion_window_max = 1u << 30;

// new_reno, cubic, dctcp, timely.
[[nodiscard]] Result<std::unique_ptr<const CongestionControl>> congestion_control(std::string_view name);

// Slow start, as all of them do it below their threshold (RFC 5681). Returns the bytes beyond it.
[[nodiscard]] std::uint32_t slow_start(Congestion& congestion, const Acknowledged& what) noexcept;
// Only a window that was used may grow (RFC 7661).
[[nodiscard]] inline bool window_was_used(const Congestion& congestion, const Acknowledged& what) noexcept {
  const std::uint64_t used =
      congestion.window < congestion.threshold ? 2ull * what.in_flight : what.in_flight + 2ull * what.mss;
  return used >= congestion.window;
}

}  // namespace offpath::tcp
