// What happens when nothing does: retransmission (RFC 6298), window probes, delayed acknowledgements, keepalive,
// TIME_WAIT.
#include "tcp/stack/stack.h"

namespace offpath::tcp {

TimeNs Stack::keepalive_at(const Flow& flow) const noexcept {
  const FlowOptions& options = flow.slow->options;
  const bool open = flow.state == FlowState::established || flow.state == FlowState::close_wait ||
                    flow.state == FlowState::fin_wait_2;
  if (options.keepalive_idle_ns == 0 || !open || flow.una != flow.next) return never;
  return flow.slow->probe_at;
}

void Stack::begin_waiting(Flow& flow, TimeNs now) noexcept {
  if (flow.slow->waits_since != 0) return;
  flow.slow->waits_since = now;
  flow.slow->waited_at = flow.acknowledged;
}

// Something was acknowledged. A peer that takes a byte now and then keeps nobody waiting who has left.
void Stack::wait_on(Flow& flow, TimeNs now) const noexcept {
  FlowSlow& slow = *flow.slow;
  const bool all = flow.una == flow.next && (flow.fin_sent || flow.next == data_end(flow));
  if (all || !flow.released || slow.waits_since == 0 || flow.acknowledged - slow.waited_at >= flow.mss)
    slow.waits_since = 0;
  if (!all) begin_waiting(flow, now);
}

// When what was sent has waited for too long.
TimeNs Stack::give_up_at(const Flow& flow) const noexcept {
  const FlowSlow& slow = *flow.slow;
  const TimeNs last = slow.orphan != 0 ? slow.orphan_since + options_.orphan_lifetime_ns : never;
  if (slow.waits_since == 0) return last;
  const TimeNs user = slow.options.user_timeout_ns != 0 ? slow.options.user_timeout_ns : never,
               orphan = flow.released && fast_ == nullptr ? options_.orphan_ns : never;
  const TimeNs most = std::min(user, orphan);
  return most == never ? last : std::min(last, slow.waits_since + most);
}

void Stack::timer_due(Flow& flow, TimeNs now) {
  if (flow.state == FlowState::closed) return;
  if (give_up_at(flow) <= now) {
    counters_.orphans_reset += flow.released ? 1 : 0;
    return reset(flow, FlowError::timed_out, now);
  }
  if (flow.ack_due <= now) {
    flow.ack_due = never;
    flow.wants_ack = true;
    make_ready(flow);
  }
  if (flow.paced_until != 0 && flow.paced_until <= now) {
    flow.paced_until = 0;
    make_ready(flow);
  }
  if (flow.slow->mss_again_at <= now) {
    flow.slow->mss_again_at = never;
    flow.mss = flow.slow->mss_before;
  }
  if (flow.retransmit_due <= now) retransmission_due(flow, now);
  if (flow.state == FlowState::closed) return;
  if (keepalive_at(flow) <= now) keepalive_due(flow, now);
  if (flow.state != FlowState::closed) arm(flow);
}

// What is to happen if nothing comes back: a retransmission; or before that, where SACK will say what it shows, a tail
// probe after two round trips (RFC 8985, 7.2). Of a single segment in flight the acknowledgement may be delayed for
// longer than that.
void Stack::await_acknowledgement(Flow& flow, TimeNs now) {
  constexpr TimeNs granularity_ns = 2 * millisecond_ns;
  const TimeNs retransmission = flow.rtt.timeout_ns(options_.rto, flow.retries), round_trip = flow.rtt.smoothed_ns();
  const TimeNs tail = 2 * round_trip + granularity_ns;
  const bool may = flow.sack && round_trip != 0 && !flow.repairing && !flow.tail_out && flow.send_window > 0;
  flow.tail_due = may && tail < retransmission && bytes_between(flow.una, flow.next) > flow.mss;
  flow.retransmit_due = now + (flow.tail_due ? tail : retransmission);
}

void Stack::retransmission_due(Flow& flow, TimeNs now) {
  flow.retransmit_due = never;
  if (flow.tail_due) {
    flow.tail_due = false;
    flow.wants_tail = true;
    flow.retransmit_due = now + flow.rtt.timeout_ns(options_.rto, flow.retries);
    return make_ready(flow);
  }
  if (flow.state == FlowState::time_wait || (flow.state == FlowState::fin_wait_2 && flow.released))
    return end(flow, FlowError::none);
  if (flow.state == FlowState::syn_sent || flow.state == FlowState::syn_received) {
    if (flow.retries >= options_.syn_retries) return reset(flow, FlowError::timed_out, now);
    ++flow.retries;
    ++counters_.timeouts;
    flow.wants_syn = true;
    return make_ready(flow);
  }
  if (flow.una == flow.next) {
    if (flow.next == data_end(flow)) return;
    // The window is closed, or the owner's address was not found.
    if (flow.slow->probes >= options_.retries) return reset(flow, FlowError::timed_out, now);
    ++flow.slow->probes;
    flow.wants_probe = true;
    return make_ready(flow);
  }
  if (flow.retries >= options_.retries) return reset(flow, FlowError::timed_out, now);
  ++counters_.timeouts;
  congestion_.on_timeout(flow.congestion, bytes_between(flow.una, flow.next), flow.mss,
                         flow.retries == 0 && !flow.timed_out, now);
  ++flow.retries;
  scoreboard(flow).lose_all(flow.una, flow.next);
  flow.repairing = flow.timed_out = flow.resend_now = true;
  flow.timing = flow.tail_out = flow.wants_tail = false;
  flow.duplicates = 0;
  flow.recovery_point = flow.next;
  slow_down(flow);
  flow.retransmit_due = now + flow.rtt.timeout_ns(options_.rto, flow.retries);
  make_ready(flow);
}

void Stack::keepalive_due(Flow& flow, TimeNs now) {
  const FlowOptions& options = flow.slow->options;
  const TimeNs silent_ns = static_cast<TimeNs>(timestamp(0, now) - flow.heard_ms) * millisecond_ns;
  if (silent_ns < options.keepalive_idle_ns) {
    flow.slow->probe_at = now + options.keepalive_idle_ns - silent_ns;
    flow.slow->probes = 0;
    return;
  }
  // Answers make it heard again, so these go out in a row only to one that is silent. The user's timeout takes the
  // place of their number, as in Linux.
  const bool silent = options.user_timeout_ns != 0 ? flow.slow->probes > 0 && silent_ns >= options.user_timeout_ns
                                                   : flow.slow->probes >= options.keepalive_probes;
  if (silent) return reset(flow, FlowError::timed_out, now);
  ++flow.slow->probes;
  flow.slow->probe_at = now + options.keepalive_interval_ns;
  flow.wants_probe = true;
  make_ready(flow);
}

}  // namespace offpath::tcp
