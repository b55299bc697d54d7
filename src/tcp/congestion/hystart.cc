#include "tcp/congestion/hystart.h"

#include <algorithm>

namespace offpath::tcp {
namespace {

// RFC 9406, 4.3. Its limit L on the growth by one acknowledgement is infinite here: receivers that merge segments
// acknowledge up to 64 KB at once.
constexpr std::uint32_t threshold_least_us = 4000, threshold_most_us = 16'000, threshold_divisor = 8;
constexpr std::uint8_t samples_least = 8, conservative_rounds = 5;

}  // namespace

namespace {

// With the sample of this acknowledgement.
StartPhase judge(StartState& state) noexcept {
  if (state.samples < samples_least) return state.is_conservative ? StartPhase::conservative : StartPhase::slow_start;
  if (state.is_conservative) {
    if (state.shortest_us >= state.baseline_us) return StartPhase::conservative;
    state.is_conservative = false;  // the delay was not a queue
    return StartPhase::slow_start;
  }
  if (state.previous_us == 0) return StartPhase::slow_start;
  const std::uint32_t longer = std::clamp(state.previous_us / threshold_divisor, threshold_least_us, threshold_most_us);
  if (state.shortest_us < state.previous_us + longer) return StartPhase::slow_start;
  state.is_conservative = true;
  state.rounds = 0;
  state.baseline_us = state.shortest_us;
  return StartPhase::conservative;
}

}  // namespace

StartPhase hystart(StartState& state, const Acknowledged& what) noexcept {
  if (state.round_bytes == 0) state.round_bytes = what.in_flight;
  if (what.delay_ns > 0) {
    const auto us = static_cast<std::uint32_t>(std::min<TimeNs>(what.delay_ns / microsecond_ns, 600'000'000));
    state.shortest_us = state.samples == 0 ? us : std::min(state.shortest_us, us);
    if (state.samples < samples_least) ++state.samples;
  }
  const StartPhase phase = judge(state);
  if (state.round_bytes > what.bytes) {
    state.round_bytes -= what.bytes;
    return phase;
  }
  // All data in flight at the round's beginning is acknowledged. Its last segment has measured a round trip of that
  // round.
  state.round_bytes = what.in_flight > what.bytes ? what.in_flight - what.bytes : 0;
  state.previous_us = state.samples > 0 ? state.shortest_us : 0;
  state.samples = 0;
  return state.is_conservative && ++state.rounds >= conservative_rounds ? StartPhase::over : phase;
}

}  // namespace offpath::tcp
