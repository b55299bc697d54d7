#include "tcp/flow/waiting.h"
#include "tcp/flow/positions.h"

namespace offpath::tcp {

TimeNs keepalive_at(const Flow& flow) noexcept {
  const FlowOptions& options = flow.slow->options;
  const bool open = flow.state == FlowState::established || flow.state == FlowState::close_wait ||
                    flow.state == FlowState::fin_wait_2;
  if (options.keepalive_idle_ns == 0 || !open || flow.una != flow.next) return never;
  return flow.slow->probe_at;
}

void begin_waiting(Flow& flow, TimeNs now) noexcept {
  if (flow.slow->waits_since != 0) return;
  flow.slow->waits_since = now;
  flow.slow->waited_at = flow.acknowledged;
}

void wait_on(Flow& flow, TimeNs now) noexcept {
  FlowSlow& slow = *flow.slow;
  const bool all = flow.una == flow.next && (flow.fin_sent || flow.next == data_end(flow));
  if (all || !flow.released || slow.waits_since == 0 || flow.acknowledged - slow.waited_at >= flow.mss)
    slow.waits_since = 0;
  if (flow.una == flow.next) slow.idle_since = now;
  if (!all) begin_waiting(flow, now);
}

void await_acknowledgement(Flow& flow, const RtoLimits& rto, TimeNs now) {
  constexpr TimeNs granularity_ns = 2 * millisecond_ns;
  const TimeNs retransmission = flow.rtt.timeout_ns(rto, flow.retries), round_trip = flow.rtt.smoothed_ns();
  const TimeNs tail = 2 * round_trip + granularity_ns;
  const bool may = flow.sack && round_trip != 0 && !flow.repairing && !flow.tail_out && flow.send_window > 0;
  flow.tail_due = may && tail < retransmission && bytes_between(flow.una, flow.next) > flow.mss;
  flow.retransmit_due = now + (flow.tail_due ? tail : retransmission);
}

}  // namespace offpath::tcp
