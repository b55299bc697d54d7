// Congestion that routers mark instead of dropping (RFC 3168): agreed on by the SYNs, echoed by whoever receives marks,
// answered by whoever sent. With a congestion control that goes by the share of marked bytes (DCTCP, RFC 8257) each
// acknowledgement echoes what has just arrived; otherwise the echo goes on until the sender says that its window has
// shrunk (CWR).
#include "tcp/stack/stack.h"

namespace offpath::tcp {

bool Stack::asks_for_ecn(const Segment& syn) noexcept { return syn.has(flag::ece | flag::cwr); }

// Of what goes out: marks are allowed on new data alone, so that nobody can fill a window with what was acknowledged
// already.
void Stack::mark_capable(Flow& flow, Segment& segment, bool new_data) noexcept {
  if (flow.ecn_echo) segment.flags |= flag::ece;
  if (!new_data) return;
  segment.ecn = Ecn::capable_0;
  if (!flow.cwr_due) return;
  segment.flags |= flag::cwr;
  flow.cwr_due = false;
}

// Of what comes in, with payload.
void Stack::take_mark(Flow& flow, const Segment& segment) {
  const bool marked = segment.ecn == Ecn::congested, before = flow.ecn_echo;
  counters_.marked_in += marked ? 1 : 0;
  if (congestion_.wants_ecn() || segment.has(flag::cwr))
    flow.ecn_echo = marked;
  else
    flow.ecn_echo |= marked;
  if (flow.ecn_echo != before) flow.wants_ack = true;
}

// An acknowledgement that echoes marks: once for each window of data the sender slows down, and says so.
void Stack::take_echo(Flow& flow, const Segment& segment, TimeNs now) {
  if (flow.slowed_down && flow.una > flow.slow->slowed_down_until) flow.slowed_down = false;
  if (!segment.has(flag::ece)) return;
  ++counters_.echoes_in;
  if (flow.slowed_down || flow.repairing || flow.una == flow.next) return;
  if (!congestion_.wants_ecn()) congestion_.on_loss(flow.congestion, bytes_between(flow.una, flow.next), flow.mss, now);
  slow_down(flow);
}

// The window has shrunk: not again for what is on its way by now.
void Stack::slow_down(Flow& flow) noexcept {
  flow.slowed_down = flow.cwr_due = flow.ecn;
  flow.slow->slowed_down_until = flow.next;
}

}  // namespace offpath::tcp
