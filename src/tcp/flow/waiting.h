// How long a flow has waited for its peer: what retransmission, keepalive and the user's timeout go by.
#pragma once

#include "tcp/flow/flow.h"

namespace offpath::tcp {

// When to see whether the peer is still there; `never` without keepalive, or while something is in flight.
[[nodiscard]] TimeNs keepalive_at(const Flow& flow) noexcept;
void begin_waiting(Flow& flow, TimeNs now) noexcept;
// Something was acknowledged. After release, an acknowledgement of less than a segment does not restart the wait.
void wait_on(Flow& flow, TimeNs now) noexcept;
// Sets the time of a retransmission; or, where SACK will show what is missing, of a tail probe after two round trips
// (RFC 8985, 7.2). The acknowledgement of a single segment in flight may be delayed for longer than that.
void await_acknowledgement(Flow& flow, const RtoLimits& rto, TimeNs now);

}  // namespace offpath::tcp
