// The values that a flow takes from the segments of its handshake.
#pragma once

#include "tcp/flow/context.h"
#include "tcp/stack/half_open.h"

namespace offpath::tcp {

// The options of the peer's SYN.
void take_syn_options(Flow& flow, const TcpOptions& peer, const StackContext& context) noexcept;
// The peer reports marks by accurate ECN (RFC 9768).
AccurateEcn& be_accurate(Flow& flow);
// A half-open connection, whose handshake is complete now.
void take_half_open(Flow& flow, const HalfOpen& half, StackContext& context, TimeNs now);

}  // namespace offpath::tcp
