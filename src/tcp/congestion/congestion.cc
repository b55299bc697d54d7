#include "tcp/congestion/congestion.h"

#include <algorithm>

#include "tcp/congestion/congestion_algorithms.h"

namespace offpath::tcp {

void CongestionControl::begin(Congestion& congestion, std::uint32_t mss, TimeNs) const noexcept {
  congestion = {};
  congestion.window = initial_window_segments * mss;
  congestion.threshold = congestion_window_max;
}

void CongestionControl::on_timeout(Congestion& congestion, std::uint32_t in_flight, std::uint32_t mss, bool first,
                                   TimeNs now) const noexcept {
  if (first) on_loss(congestion, in_flight, mss, now);
  congestion.window = mss;
}

std::uint32_t slow_start(Congestion& congestion, const Acknowledged& what) noexcept {
  if (congestion.window >= congestion.threshold) return what.bytes;
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

}  // namespace offpath::tcp
