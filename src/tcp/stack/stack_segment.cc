// A segment arrives (RFC 9293, 3.10.7): may it be taken, and what do RST and SYN mean in this state.
#include "tcp/stack/stack.h"

namespace offpath::tcp {

namespace {
constexpr std::uint32_t timestamp_valid_ms = 24u * 24 * 3600 * 1000;  // RFC 7323, 5.5
}

void Stack::take_syn_options(Flow& flow, const TcpOptions& peer) const noexcept {
  flow.timestamps = peer.timestamps.has_value();
  flow.sack = peer.sack_permitted;
  if (peer.timestamps) flow.recent_timestamp = peer.timestamps->value;
  if (peer.window_scale) {
    flow.send_scale = *peer.window_scale;
  } else {
    flow.send_scale = flow.receive_scale = 0;
  }
  const std::uint32_t most =
      std::min<std::uint32_t>(std::max<std::uint16_t>(peer.mss.value_or(536), options_.mss_least), own_mss());
  flow.mss = static_cast<std::uint16_t>(most - (flow.timestamps ? 12 : 0));
}

void Stack::take_window(Flow& flow, std::uint32_t window, Sequence sequence, Sequence ack) noexcept {
  flow.send_window = window;
  flow.slow->send_window_most = std::max(flow.slow->send_window_most, window);
  flow.window_sequence = sequence;
  flow.window_ack = ack;
}

void Stack::established(Flow& flow, TimeNs now) {
  flow.state = FlowState::established;
  flow.heard_ms = timestamp(0, now);
  flow.retries = 0;
  flow.retransmit_due = never;
  flow.slow->waits_since = 0;
  note(flow, change::connected);
  arm(flow);
  make_ready(flow);
}

void Stack::receive_segment(Flow& flow, const Segment& segment, const MacAddress& from, TimeNs now) {
  if (flow.state == FlowState::syn_sent) return receive_in_syn_sent(flow, segment, from, now);
  if (flow.state == FlowState::time_wait && segment.has(flag::syn) && !segment.has(flag::ack) &&
      !segment.has(flag::rst) && segment.sequence > flow.receive_next && listeners_.contains(flow.key.local.port)) {
    // The peer begins anew, with a number beyond the old ones (RFC 9293, 3.6.1).
    end(flow, FlowError::none);
    return receive_unknown(segment, from, now);
  }
  if (!acceptable(flow, segment, now)) return;
  if (segment.has(flag::rst)) {
    // RFC 5961, 3.2: only the very next number ends the flow; a guess within the window is asked about.
    if (segment.sequence != flow.receive_next) return challenge(flow, now);
    ++counters_.resets_in;
    if (flow.state == FlowState::time_wait) return;  // RFC 1337
    const bool refused = flow.state == FlowState::syn_received;
    return end(flow, refused ? FlowError::refused : FlowError::reset);
  }
  if (segment.has(flag::syn)) {
    // A simultaneous open's SYN comes again if our answer was lost. Others are asked about (RFC 5961, 4.2).
    if (flow.state == FlowState::syn_received && segment.sequence + 1 == flow.receive_next) {
      if (!segment.has(flag::ack)) {
        flow.wants_syn = true;
        return make_ready(flow);
      }
    } else {
      return challenge(flow, now);
    }
  }
  if (!segment.has(flag::ack)) return;
  if (flow.state == FlowState::syn_received) {
    if (segment.acknowledgement != flow.next) return refuse(segment, from);
    take_window(flow, std::uint32_t{segment.window} << (segment.has(flag::syn) ? 0 : flow.send_scale), segment.sequence,
                segment.acknowledgement);
    flow.una = segment.acknowledgement;
    ++counters_.connected;
    established(flow, now);
    if (fast_ != nullptr) return hand_over(flow, frame_, now);
  }
  if (!receive_acknowledgement(flow, segment, now)) return;
  if (flow.state == FlowState::closed) return;
  receive_text(flow, segment, now);
}

void Stack::receive_in_syn_sent(Flow& flow, const Segment& segment, const MacAddress& from, TimeNs now) {
  const bool acknowledged = segment.has(flag::ack);
  if (acknowledged && (segment.acknowledgement != flow.next || flow.next == flow.una)) return refuse(segment, from);
  if (segment.has(flag::rst)) {
    if (!acknowledged) return;
    ++counters_.resets_in;
    return end(flow, FlowError::refused);
  }
  if (!segment.has(flag::syn)) return;
  flow.receive_next = flow.ack_sent = segment.sequence + 1;
  flow.receive_edge = flow.receive_next + static_cast<std::uint32_t>(std::min<std::uint64_t>(flow.allowed, 65'535));
  take_window(flow, segment.window, segment.sequence, acknowledged ? segment.acknowledgement : flow.una);
  take_syn_options(flow, segment.options);
  flow.ecn = flow.ecn && acknowledged && segment.has(flag::ece) && !segment.has(flag::cwr);
  congestion_.begin(flow.congestion, flow.mss, now);
  if (!acknowledged) {
    // Both have begun at once: SYN and ACK to the peer, whose own will establish the flow.
    flow.state = FlowState::syn_received;
    flow.wants_syn = true;
    return make_ready(flow);
  }
  if (flow.timing) flow.rtt.add(now - flow.timed_at, options_.rto);
  flow.timing = false;
  flow.una = segment.acknowledgement;
  flow.wants_ack = true;
  ++counters_.connected;
  established(flow, now);
  if (fast_ != nullptr) return hand_over(flow, nullptr, now);  // what came with its SYN comes again
  receive_text(flow, segment, now);
}

// RFC 9293, 3.10.7.4, first; RFC 7323, 5.3. What cannot be taken is answered with what is expected.
bool Stack::acceptable(Flow& flow, const Segment& segment, TimeNs now) {
  const bool reset = segment.has(flag::rst);
  if (flow.timestamps && !reset) {
    if (!segment.options.timestamps) return false;
    const std::uint32_t value = segment.options.timestamps->value;
    // Of a peer that was silent for longer nothing can be said: its clock may have gone half round.
    const bool recent = timestamp(0, now) - flow.heard_ms < timestamp_valid_ms;
    if (recent && static_cast<std::int32_t>(value - flow.recent_timestamp) < 0) {
      ++counters_.duplicates;
      if (segment.length() > 0) {
        flow.wants_ack = true;
        make_ready(flow);
      }
      return false;
    }
  }
  const Sequence begin =
      segment.has(flag::syn) && flow.state == FlowState::syn_received ? segment.sequence + 1 : segment.sequence;
  if (segment.end() < flow.receive_next || begin > flow.receive_edge) {
    if (reset) return false;
    ++counters_.duplicates;
    // What carries something is answered each time, or its sender would go on sending it; the rest seldom, or two ends
    // that disagree would answer each other for ever.
    if (segment.length() > 0 && !segment.has(flag::syn)) {
      flow.wants_ack = true;
      make_ready(flow);
    } else {
      challenge(flow, now);
    }
    return false;
  }
  if (segment.options.timestamps && !reset && segment.sequence <= flow.ack_sent)
    flow.recent_timestamp = segment.options.timestamps->value;
  flow.heard_ms = timestamp(0, now);
  return true;
}

void Stack::challenge(Flow& flow, TimeNs now) {
  const std::uint32_t now_ms = timestamp(0, now) | 1;  // 0: never
  const auto every = static_cast<std::uint32_t>(options_.challenge_every_ns / millisecond_ns);
  if (flow.challenged_ms != 0 && now_ms - flow.challenged_ms < every) return;
  flow.challenged_ms = now_ms;
  ++counters_.challenges;
  flow.wants_ack = true;
  make_ready(flow);
}

}  // namespace offpath::tcp
