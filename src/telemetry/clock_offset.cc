#include "telemetry/clock_offset.h"

#include <algorithm>

namespace offpath::exchange {

namespace {

// A host's clock outside the years 1970 to 2200 is ignored. Sums within them do not overflow.
constexpr std::int64_t latest_ns = std::int64_t{7'258'118'400} * second_ns;

bool is_time(std::int64_t ns) noexcept { return ns >= 0 && ns < latest_ns; }

}  // namespace

bool ClockOffset::add(const ClockExchange& exchange) noexcept {
  if (!is_time(exchange.received_ns) || !is_time(exchange.sent_ns)) return false;
  const TimeNs held = exchange.sent_ns - exchange.received_ns, whole = exchange.arrived_ns - exchange.asked_ns;
  // Both clocks may drift during the exchange.
  if (held < 0 || whole < 0 || held > whole + whole / 1'000 + microsecond_ns) return false;
  const TimeNs delay = std::max<TimeNs>(whole - held, 0);
  // The sum of two offsets of centuries overflows; one offset plus half the difference does not.
  const std::int64_t first = exchange.received_ns - exchange.asked_ns, second = exchange.sent_ns - exchange.arrived_ns;
  const Estimate made{second + (first - second) / 2, delay, exchange.arrived_ns};
  if (known()) {
    const Estimate& believed = best(made.at_ns);
    const std::int64_t apart =
        made.offset_ns > believed.offset_ns ? made.offset_ns - believed.offset_ns : believed.offset_ns - made.offset_ns;
    if (apart > bound(made, made.at_ns) + bound(believed, made.at_ns)) {
      ++jumps_;
      count_ = next_ = 0;
    }
  }
  estimates_[next_] = made;
  next_ = (next_ + 1) % estimates_.size();
  count_ = std::min(count_ + 1, estimates_.size());
  return true;
}

TimeNs ClockOffset::bound(const Estimate& estimate, TimeNs now) noexcept {
  const TimeNs age = std::max<TimeNs>(now - estimate.at_ns, 0);
  return estimate.delay_ns / 2 + microsecond_ns + age / 1'000'000 * drift_ppm;
}

TimeNs ClockOffset::bound_ns(TimeNs now) const noexcept { return bound(best(now), now); }

const ClockOffset::Estimate& ClockOffset::best(TimeNs now) const noexcept {
  return *std::min_element(estimates_.begin(),
                           estimates_.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(count_, 1)),
                           [now](const Estimate& a, const Estimate& b) { return bound(a, now) < bound(b, now); });
}

}  // namespace offpath::exchange
