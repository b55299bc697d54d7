#include <algorithm>

#include "tcp/congestion/congestion_algorithms.h"

namespace offpath::tcp {

void NewReno::on_acknowledged(Congestion& congestion, const Acknowledged& what) const noexcept {
  if (!window_was_used(congestion, what)) return;
  const std::uint32_t bytes = slow_start(congestion, what);
  if (bytes == 0) return;
  // One segment for each acknowledged window, byte by byte (RFC 5681, 3.1), at least one byte.
  const std::uint64_t grown = std::uint64_t{bytes} * what.mss / std::max(congestion.window, 1u);
  congestion.window = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(congestion.window + std::max<std::uint64_t>(grown, 1), congestion_window_max));
}

void NewReno::on_loss(Congestion& congestion, std::uint32_t in_flight, std::uint32_t mss, TimeNs) const noexcept {
  if (is_first_start(congestion)) congestion.own = {};
  congestion.threshold = std::max(in_flight / 2, 2 * mss);
  congestion.window = congestion.threshold;
}

}  // namespace offpath::tcp
