#include "tcp/stack/ecn.h"

namespace offpath::tcp {

void EcnFeedback::mark_capable(Flow& flow, Segment& segment, bool new_data) noexcept {
  if (flow.ecn_echo) segment.flags |= flag::ece;
  if (!new_data) return;
  segment.ecn = Ecn::capable_0;
  if (!flow.cwr_due) return;
  segment.flags |= flag::cwr;
  flow.cwr_due = false;
}

void EcnFeedback::take_mark(Flow& flow, const Segment& segment) {
  const bool marked = segment.ecn == Ecn::congested, before = flow.ecn_echo;
  context_.counters.marked_in += marked ? 1 : 0;
  if (context_.congestion.wants_ecn() || segment.has(flag::cwr))
    flow.ecn_echo = marked;
  else
    flow.ecn_echo |= marked;
  if (flow.ecn_echo != before) flow.wants_ack = true;
}

void EcnFeedback::take_echo(Flow& flow, const Segment& segment, TimeNs now) {
  if (flow.slowed_down && flow.una > flow.slow->slowed_down_until) flow.slowed_down = false;
  if (!segment.has(flag::ece)) return;
  ++context_.counters.echoes_in;
  if (flow.slowed_down || flow.repairing || flow.una == flow.next) return;
  if (flow.slow->repair != nullptr) flow.slow->repair->may_undo = false;  // that would undo this, too
  if (!context_.congestion.wants_ecn())
    context_.congestion.on_loss(flow.congestion, bytes_between(flow.una, flow.next), flow.mss, now);
  slow_down(flow);
}

void EcnFeedback::slow_down(Flow& flow) noexcept {
  flow.slowed_down = flow.cwr_due = flow.ecn;
  flow.slow->slowed_down_until = flow.next;
}

}  // namespace offpath::tcp
