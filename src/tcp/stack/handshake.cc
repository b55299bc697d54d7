#include "tcp/stack/handshake.h"
#include "tcp/flow/positions.h"

namespace offpath::tcp {

void take_syn_options(Flow& flow, const TcpOptions& peer, const StackContext& context) noexcept {
  flow.timestamps = peer.timestamps.has_value();
  flow.sack = peer.sack_permitted;
  if (peer.timestamps) flow.recent_timestamp = peer.timestamps->value;
  if (peer.window_scale) {
    flow.send_scale = *peer.window_scale;
  } else {
    flow.send_scale = flow.receive_scale = 0;
  }
  const IpFamily family = flow.key.family();
  const std::uint32_t most = std::min<std::uint32_t>(
      std::max<std::uint16_t>(peer.mss.value_or(default_mss(family)), context.options.mss_least),
      context.own_mss(family));
  flow.mss = static_cast<std::uint16_t>(most - (flow.timestamps ? 12 : 0));
}

AccurateEcn& be_accurate(Flow& flow) {
  flow.accurate = true;
  flow.slow->accurate = std::make_unique<AccurateEcn>();
  return *flow.slow->accurate;
}

void take_half_open(Flow& flow, const HalfOpen& half, StackContext& context, TimeNs now) {
  flow.slow->iss = half.iss;
  flow.slow->begun = half.begun;
  flow.accepted = true;
  flow.timestamp_offset = half.timestamp_offset;
  flow.una = flow.next = half.iss + 1;
  flow.receive_next = flow.ack_sent = half.irs + 1;
  flow.receive_edge = flow.receive_next + static_cast<std::uint32_t>(std::min<std::uint64_t>(flow.allowed, 65'535));
  take_window(flow, half.peer_window, half.irs, half.iss);
  take_syn_options(flow, half.peer, context);
  flow.ecn = half.ecn != EcnMode::none;
  if (half.ecn == EcnMode::accurate) {
    be_accurate(flow).await_handshake();
    ++context.counters.accurate_ecn;
    if (!half.may_mark) flow.slow->accurate->do_not_mark();
  }
  if (half.answered_at != 0 && now > half.answered_at) flow.rtt.add(now - half.answered_at, context.options.rto);
}

}  // namespace offpath::tcp
