#include <algorithm>

#include "tcp/congestion/congestion_algorithms.h"

namespace offpath::tcp {
namespace {

constexpr double gain = 1.0 / 16;  // RFC 8257, 4.2

}  // namespace

void set_rate(Congestion& congestion, double bytes_per_second, TimeNs rtt_ns, std::uint32_t mss) noexcept {
  const double rtt_seconds = double(std::max<TimeNs>(rtt_ns, microsecond_ns)) / second_ns;
  const double least = mss / std::max(rtt_seconds, 1e-3);  // a segment in each round trip or millisecond
  const double rate = std::clamp(bytes_per_second, least, 100e9);
  congestion.rate = static_cast<std::uint64_t>(rate);
  congestion.window =
      static_cast<std::uint32_t>(std::clamp<double>(1.5 * rate * rtt_seconds, 4.0 * mss, congestion_window_max));
}

void Dctcp::begin(Congestion& congestion, std::uint32_t mss, TimeNs now) const noexcept {
  CongestionControl::begin(congestion, mss, now);
  congestion.own.dctcp = {0, 0, 0, 1};
}

void Dctcp::take_over(Congestion& congestion) const noexcept {
  CongestionControl::take_over(congestion);
  congestion.own.dctcp = {0, 0, 0, 1};
}

// Once in a round trip: updates the smoothed share of marked bytes, and lowers the rate by half of that share, or
// raises it. The rate doubles until the first mark, up to four times the arrival rate, which is the sending rate of a
// round trip ago: the doubling stops where a queue begins to fill.
void Dctcp::on_acknowledged(Congestion& congestion, const Acknowledged& what) const noexcept {
  DctcpState& own = congestion.own.dctcp;
  own.acknowledged += what.bytes;
  own.marked += what.marked;
  if (what.smoothed_rtt_ns == 0 || what.now < own.round_began + what.smoothed_rtt_ns) return;
  const double share = own.acknowledged == 0 ? 0 : std::min(1.0, double(own.marked) / own.acknowledged);
  const bool marked = own.marked > 0;
  own.share = static_cast<float>((1 - gain) * own.share + gain * share);
  const bool used = rate_was_used(congestion, what);
  const double rtt_seconds = double(what.smoothed_rtt_ns) / second_ns;
  double rate = congestion.rate != 0 ? double(congestion.rate) : congestion.window / rtt_seconds;
  const bool slow = congestion.window < congestion.threshold;
  const double arrives = own.acknowledged / (double(std::max<TimeNs>(what.now - own.round_began, 1)) / second_ns);
  if (marked) {
    rate *= 1 - own.share / 2;
    congestion.threshold = std::max(congestion.window / 2, 2 * what.mss);  // slow start is over
  } else if (used) {
    rate = !slow                  ? rate + what.mss / rtt_seconds
           : own.round_began == 0 ? 2 * rate
                                  : std::max(rate, std::min(2 * rate, 4 * arrives));
  }
  own.acknowledged = own.marked = 0;
  own.round_began = what.now;
  set_rate(congestion, rate, what.smoothed_rtt_ns, what.mss);
}

void Dctcp::on_loss(Congestion& congestion, std::uint32_t in_flight, std::uint32_t mss, TimeNs) const noexcept {
  congestion.threshold = std::max(in_flight / 2, 2 * mss);
  congestion.window = congestion.threshold;
  congestion.rate /= 2;
}

}  // namespace offpath::tcp
