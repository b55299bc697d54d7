#include "tcp/stack/flow_timers.h"
#include "tcp/flow/positions.h"
#include "tcp/flow/waiting.h"

namespace offpath::tcp {

void FlowTimers::due(Flow& flow, TimeNs now) {
  if (flow.state == FlowState::closed) return;
  if (flows_.give_up_at(flow) <= now) {
    context_.counters.orphans_reset += flow.released ? 1 : 0;
    return flows_.reset(flow, FlowError::timed_out, now);
  }
  if (flow.ack_due <= now) {
    flow.ack_due = never;
    flow.wants_ack = true;
    flows_.make_ready(flow);
  }
  if (flow.paced_until != 0 && flow.paced_until <= now) {
    flow.paced_until = 0;
    flows_.make_ready(flow);
  }
  if (flow.slow->mss_again_at <= now) try_larger_segments(flow, now);
  if (flow.slow->judge_at <= now) recovery_.judge_late(flow, now);
  if (flow.retransmit_due <= now) retransmission_due(flow, now);
  if (flow.state == FlowState::closed) return;
  if (keepalive_at(flow) <= now) keepalive_due(flow, now);
  if (flow.state != FlowState::closed) flows_.arm(flow);
}

// Probes find the largest segment of the path. Without probes (no SACK, or little data), segments grow to the former
// size, and a router or timeouts may make them smaller again.
void FlowTimers::try_larger_segments(Flow& flow, TimeNs now) const noexcept {
  FlowSlow& slow = *flow.slow;
  const bool smaller = flow.mss < slow.mss_before, probes = flow.sack && !slow.search.without_probe();
  slow.mss_again_at = smaller && probes ? now + context_.options.path_mtu_ns : never;
  if (!smaller) return;
  slow.search = {};
  if (probes)
    slow.search.begin(slow.mss_before);
  else
    flow.mss = slow.mss_before;
}

void FlowTimers::retransmission_due(Flow& flow, TimeNs now) {
  flow.retransmit_due = never;
  if (flow.tail_due) {
    flow.tail_due = false;
    flow.wants_tail = true;
    flow.retransmit_due = now + flow.rtt.timeout_ns(context_.options.rto, flow.retries);
    return flows_.make_ready(flow);
  }
  if (flow.state == FlowState::time_wait || (flow.state == FlowState::fin_wait_2 && flow.released))
    return flows_.end(flow, FlowError::none);
  if (flow.state == FlowState::syn_sent || flow.state == FlowState::syn_received) {
    if (flow.retries >= context_.options.syn_retries) return flows_.reset(flow, FlowError::timed_out, now);
    ++flow.retries;
    ++context_.counters.timeouts;
    flows_.doubt_next_hop(flow, now);
    flow.wants_syn = true;
    return flows_.make_ready(flow);
  }
  if (flow.una == flow.next) {
    if (flow.next == data_end(flow)) return;
    // The window is closed, or the owner's address was not found.
    if (flow.slow->probes >= context_.options.retries) return flows_.reset(flow, FlowError::timed_out, now);
    ++flow.slow->probes;
    flow.wants_probe = true;
    return flows_.make_ready(flow);
  }
  if (flow.retries >= context_.options.retries) return flows_.reset(flow, FlowError::timed_out, now);
  flows_.doubt_next_hop(flow, now);
  recovery_.time_out(flow, now);
}

void FlowTimers::keepalive_due(Flow& flow, TimeNs now) {
  const FlowOptions& options = flow.slow->options;
  const TimeNs silent_ns = static_cast<TimeNs>(context_.timestamp(0, now) - flow.heard_ms) * millisecond_ns;
  if (silent_ns < options.keepalive_idle_ns) {
    flow.slow->probe_at = now + options.keepalive_idle_ns - silent_ns;
    flow.slow->probes = 0;
    return;
  }
  // An answer restarts the count, so only a silent peer gets several probes in a row. The user's timeout replaces their
  // number, as in Linux.
  const bool silent = options.user_timeout_ns != 0 ? flow.slow->probes > 0 && silent_ns >= options.user_timeout_ns
                                                   : flow.slow->probes >= options.keepalive_probes;
  if (silent) return flows_.reset(flow, FlowError::timed_out, now);
  ++flow.slow->probes;
  flow.slow->probe_at = now + options.keepalive_interval_ns;
  flow.wants_probe = true;
  flows_.make_ready(flow);
}

}  // namespace offpath::tcp
