// HyStart++ (RFC 9406): a connection's first slow start ends when round trips grow longer, which shows that a queue
// fills, instead of when that queue has overflowed.
#pragma once

#include "tcp/congestion/congestion.h"

namespace offpath::tcp {

enum class StartPhase : std::uint8_t { slow_start, conservative, over };

// Takes a sample into a round of the first slow start.
[[nodiscard]] StartPhase hystart(StartState& state, const Acknowledged& what) noexcept;

}  // namespace offpath::tcp
