#include <algorithm>

#include "tcp/congestion/congestion_algorithms.h"

namespace offpath::tcp {
namespace {

// The paper's constants. Its thresholds fit one data centre, so they are taken relative to the smallest measured round
// trip.
constexpr double smoothing = 0.02, lowering = 0.8;
constexpr double low_of_smallest = 1.25, high_of_smallest = 5;
constexpr TimeNs low_least_ns = 50 * microsecond_ns, high_least_ns = 500 * microsecond_ns;
constexpr std::uint32_t fast_after = 5;

}  // namespace

void Timely::on_acknowledged(Congestion& congestion, const Acknowledged& what) const noexcept {
  TimelyState& own = congestion.own.timely;
  if (what.rtt_ns == 0) return;
  if (own.smallest_rtt == 0 || what.rtt_ns < own.smallest_rtt) own.smallest_rtt = what.rtt_ns;
  if (own.previous_rtt == 0) own.previous_rtt = what.rtt_ns;
  if (what.now < own.next_at) return;
  own.next_at = what.now + what.smoothed_rtt_ns;
  own.difference_ns =
      static_cast<float>((1 - smoothing) * own.difference_ns + smoothing * double(what.rtt_ns - own.previous_rtt));
  own.previous_rtt = what.rtt_ns;
  const double gradient = own.difference_ns / double(own.smallest_rtt), rtt = double(what.rtt_ns),
               smallest = double(own.smallest_rtt);
  const double low = std::max(low_of_smallest * smallest, smallest + low_least_ns),
               high = std::max(high_of_smallest * smallest, smallest + high_least_ns);
  const double step = what.mss / (double(what.smoothed_rtt_ns) / second_ns);  // a segment in each round trip
  double rate = congestion.rate != 0 ? double(congestion.rate) : congestion.window / (rtt / second_ns);
  const bool used = window_was_used(congestion, what);
  if (rtt > high) {
    rate *= 1 - lowering * (1 - high / rtt);
    own.falling = 0;
    congestion.threshold = 0;
  } else if (rtt >= low && gradient > 0) {
    rate *= 1 - std::min(lowering * gradient, 0.5);
    own.falling = 0;
    congestion.threshold = 0;
  } else if (used) {
    if (congestion.window < congestion.threshold) {
      rate *= 2;  // until delay or loss is seen for the first time
    } else {
      rate += ++own.falling >= fast_after ? 5 * step : step;
    }
  }
  set_rate(congestion, rate, what.rtt_ns, what.mss);
}

void Timely::on_loss(Congestion& congestion, std::uint32_t in_flight, std::uint32_t mss, TimeNs) const noexcept {
  congestion.window = std::max(in_flight / 2, 2 * mss);
  congestion.threshold = 0;
  congestion.rate /= 2;
  congestion.own.timely.falling = 0;
}

}  // namespace offpath::tcp
