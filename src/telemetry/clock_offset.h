// The difference between a host's clock and this agent's, from the exchange of requests and answers (like NTP, RFC 5905
// section 8):
//
//   asked_ns  --------->  received_ns           offset = ((received - asked) + (sent - arrived)) / 2
//   arrived_ns <--------  sent_ns               delay  = (arrived - asked) - (sent - received)
//
// The error is at most half of the delay, so of the last exchanges the one with the smallest delay counts; older ones
// count less, because clocks drift. An exchange that contradicts the current estimate shows that a clock was set, and
// all earlier ones are forgotten. The agent's side is its monotonic clock, which cannot be set.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace offpath::exchange {

struct ClockExchange {
  TimeNs asked_ns, arrived_ns;        // of this agent's monotonic clock
  std::int64_t received_ns, sent_ns;  // of the host's clock: since 1970
};

class ClockOffset {
 public:
  static constexpr std::int64_t drift_ppm = 100;  // the largest drift of two quartz clocks against each other

  // False: the exchange contradicts itself, for example because the clock was set while the host answered.
  bool add(const ClockExchange& exchange) noexcept;

  [[nodiscard]] bool known() const noexcept { return count_ != 0; }
  // The host's clock minus this agent's monotonic clock, and its largest error.
  [[nodiscard]] std::int64_t offset_ns(TimeNs now) const noexcept { return best(now).offset_ns; }
  [[nodiscard]] TimeNs bound_ns(TimeNs now) const noexcept;
  [[nodiscard]] TimeNs delay_ns(TimeNs now) const noexcept { return best(now).delay_ns; }
  // The time of an event on the host, by this agent's monotonic clock.
  [[nodiscard]] TimeNs when(std::int64_t host_ns, TimeNs now) const noexcept { return host_ns - offset_ns(now); }
  [[nodiscard]] std::uint64_t jumps() const noexcept { return jumps_; }

 private:
  struct Estimate {
    std::int64_t offset_ns;
    TimeNs delay_ns, at_ns;
  };
  [[nodiscard]] const Estimate& best(TimeNs now) const noexcept;
  [[nodiscard]] static TimeNs bound(const Estimate& estimate, TimeNs now) noexcept;

  std::array<Estimate, 32> estimates_{};
  std::size_t count_ = 0, next_ = 0;
  std::uint64_t jumps_ = 0;
};

}  // namespace offpath::exchange
