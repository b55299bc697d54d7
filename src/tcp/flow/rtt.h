// Round-trip time and retransmission timeout (RFC 6298).
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/backoff.h"

namespace offpath::tcp {

struct RtoLimits {
  // less than RFC 6298's second, as in other stacks; must exceed a peer's delayed ACK
  TimeNs minimum_ns = 200 * millisecond_ns;
  TimeNs maximum_ns = 60 * second_ns;
  TimeNs initial_ns = second_ns;
};

// In microseconds, so that it takes 12 bytes of a flow.
class RttEstimator {
 public:
  void add(TimeNs sample_ns, const RtoLimits& limits) noexcept {
    const auto sample = static_cast<std::uint32_t>(std::clamp<TimeNs>(sample_ns / microsecond_ns, 1, 600'000'000));
    if (smoothed_us_ == 0) {
      smoothed_us_ = sample;
      variation_us_ = sample / 2;
    } else {
      const std::uint32_t distance = smoothed_us_ > sample ? smoothed_us_ - sample : sample - smoothed_us_;
      variation_us_ = static_cast<std::uint32_t>((3 * std::uint64_t{variation_us_} + distance) / 4);
      smoothed_us_ =
          std::max<std::uint32_t>(1, static_cast<std::uint32_t>((7 * std::uint64_t{smoothed_us_} + sample) / 8));
    }
    const TimeNs timeout = (smoothed_us_ + std::max<TimeNs>(4 * TimeNs{variation_us_}, 1000)) * microsecond_ns;
    timeout_us_ =
        static_cast<std::uint32_t>(std::clamp(timeout, limits.minimum_ns, limits.maximum_ns) / microsecond_ns);
  }

  // 0: nothing was measured yet.
  [[nodiscard]] TimeNs smoothed_ns() const noexcept { return smoothed_us_ * microsecond_ns; }
  // The timeout after `retries` timeouts in a row, each of which doubles it. A short one is repeated once; later ones
  // have the usual length, so that a series lasts long enough to judge the peer and the path (RFC 1122, 4.2.3.5).
  [[nodiscard]] TimeNs timeout_ns(const RtoLimits& limits, std::uint32_t retries = 0) const noexcept {
    constexpr TimeNs usual_ns = RtoLimits{}.minimum_ns;
    TimeNs first = timeout_us_ == 0 ? std::max(limits.initial_ns, limits.minimum_ns) : timeout_us_ * microsecond_ns;
    if (retries > 1) first = std::max(first, usual_ns);
    return backoff_ns(first, retries, limits.maximum_ns);
  }

 private:
  std::uint32_t smoothed_us_ = 0, variation_us_ = 0, timeout_us_ = 0;
};

}  // namespace offpath::tcp
