// A flow's waits for its peer: the times of retransmission, keepalive and the user's timeout.
#pragma once

#include "tcp/flow/flow.h"

namespace offpath::tcp {

// The next keepalive check; `never` without keepalive, or while data is in flight.
[[nodiscard]] TimeNs keepalive_at(const Flow& flow) noexcept;
void begin_waiting(Flow& flow, TimeNs now) noexcept;
// New data was acknowledged. After release, an acknowledgement of less than a segment does not restart the wait.
void wait_on(Flow& flow, TimeNs now) noexcept;
// Sets the time of a retransmission, or with SACK of a tail probe after two round trips (RFC 8985, 7.2). A single
// segment in flight gets no probe, because its acknowledgement may be delayed for longer than that.
void await_acknowledgement(Flow& flow, const RtoLimits& rto, TimeNs now);

}  // namespace offpath::tcp
