// Exponential back-off: how long to wait before another attempt.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace offpath {

// `first_ns`, doubled `doublings` times, at most `most_ns`.
[[nodiscard]] constexpr TimeNs backoff_ns(TimeNs first_ns, std::uint32_t doublings, TimeNs most_ns) noexcept {
  return doublings < 63 && first_ns <= most_ns >> doublings ? first_ns << doublings : most_ns;
}

}  // namespace offpath
