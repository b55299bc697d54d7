#include "tcp/stack/segment_arrival.h"
#include "tcp/flow/positions.h"
#include "tcp/flow/waiting.h"

namespace offpath::tcp {

namespace {

constexpr std::uint32_t timestamp_valid_ms = 24u * 24 * 3600 * 1000;  // RFC 7323, 5.5

}  // namespace

bool SegmentArrival::receive(Flow& flow, const Segment& segment, const MacAddress& from, TimeNs now) {
  if (flow.state == FlowState::syn_sent) {
    receive_in_syn_sent(flow, segment, from, now);
    return true;
  }
  if (flow.state == FlowState::time_wait && segment.has(flag::syn) && !segment.has(flag::ack) &&
      !segment.has(flag::rst) && segment.sequence > flow.receive_next && listeners_.find(flow.key) != nullptr) {
    // The peer begins a new connection, with a number beyond the old ones (RFC 9293, 3.6.1).
    flows_.end(flow, FlowError::none);
    return false;
  }
  receive_synchronized(flow, segment, from, now);
  return true;
}

void SegmentArrival::receive_synchronized(Flow& flow, const Segment& segment, const MacAddress& from, TimeNs now) {
  if (!acceptable(flow, segment, now)) return;
  if (segment.has(flag::rst)) {
    // RFC 5961, 3.2: only exactly the next number ends the flow; a guess within the window gets a challenge.
    if (segment.sequence != flow.receive_next) return flows_.challenge(flow, now);
    ++context_.counters.resets_in;
    if (flow.state == FlowState::time_wait) return;  // RFC 1337
    const bool refused = flow.state == FlowState::syn_received;
    return flows_.end(flow, refused ? FlowError::refused : FlowError::reset);
  }
  if (segment.has(flag::syn)) {
    // A simultaneous open's SYN comes again if our answer was lost. Other SYNs get a challenge (RFC 5961, 4.2).
    if (flow.state == FlowState::syn_received && segment.sequence + 1 == flow.receive_next) {
      if (!segment.has(flag::ack)) {
        if (!ecn_.take_syn_again(flow, segment)) return flows_.reset(flow, FlowError::reset, now);
        flow.wants_syn = true;
        return flows_.make_ready(flow);
      }
    } else {
      flows_.challenge(flow, now);
      if (flow.accurate && flow.wants_ack) ecn_.take_syn_ack_again(flow, segment);
      return;
    }
  }
  if (flow.accurate && ecn_.count(flow, segment)) {
    flow.wants_ack = true;
    flows_.make_ready(flow);
  }
  if (!segment.has(flag::ack)) return;
  if (flow.state == FlowState::syn_received) {
    if (segment.acknowledgement != flow.next) return frames_.refuse(segment, from);
    take_window(flow, std::uint32_t{segment.window} << (segment.has(flag::syn) ? 0 : flow.send_scale), segment.sequence,
                segment.acknowledgement);
    flow.una = segment.acknowledgement;
    if (flow.accurate && segment.has(flag::syn)) ecn_.take_answer(flow, segment, now);
    ++context_.counters.connected;
    flows_.established(flow, now);
    if (other_.fast != nullptr) return handed_.give(flow, other_.frame, now);
  }
  if (!acknowledgement_.receive(flow, segment, now)) return;
  if (flow.state == FlowState::closed) return;
  reception_.receive(flow, segment, now);
}

void SegmentArrival::receive_in_syn_sent(Flow& flow, const Segment& segment, const MacAddress& from, TimeNs now) {
  const bool acknowledged = segment.has(flag::ack);
  if (acknowledged && (segment.acknowledgement != flow.next || flow.next == flow.una))
    return frames_.refuse(segment, from);
  if (segment.has(flag::rst)) {
    if (!acknowledged) return;
    ++context_.counters.resets_in;
    return flows_.end(flow, FlowError::refused);
  }
  if (!segment.has(flag::syn)) return;
  flow.receive_next = flow.ack_sent = segment.sequence + 1;
  flow.receive_edge = flow.receive_next + static_cast<std::uint32_t>(std::min<std::uint64_t>(flow.allowed, 65'535));
  take_window(flow, segment.window, segment.sequence, acknowledged ? segment.acknowledgement : flow.una);
  take_syn_options(flow, segment.options, context_);
  context_.control(flow).begin(flow.congestion, flow.mss, now);
  if (acknowledged)
    ecn_.take_syn_ack(flow, segment, now);
  else
    ecn_.take_syn(flow, segment);
  if (!acknowledged) {
    // Simultaneous open: sends SYN and ACK; the peer's will establish the flow.
    flow.state = FlowState::syn_received;
    flow.wants_syn = true;
    return flows_.make_ready(flow);
  }
  if (flow.timing) flow.rtt.add(now - flow.timed_at, context_.options.rto);
  flow.timing = false;
  flow.una = segment.acknowledgement;
  flow.wants_ack = true;
  ++context_.counters.connected;
  flows_.established(flow, now);
  if (other_.fast != nullptr) return handed_.give(flow, nullptr, now);  // data of its SYN comes again
  reception_.receive(flow, segment, now);
}

// RFC 9293, 3.10.7.4, first; RFC 7323, 5.3. Unacceptable segments are answered with the expected number.
bool SegmentArrival::acceptable(Flow& flow, const Segment& segment, TimeNs now) {
  const bool reset = segment.has(flag::rst);
  if (flow.timestamps && !reset) {
    if (!segment.options.timestamps) return false;
    const std::uint32_t value = segment.options.timestamps->value;
    // After a longer silence the check is impossible: the peer's clock may have wrapped half-way.
    const bool recent = context_.timestamp(0, now) - flow.heard_ms < timestamp_valid_ms;
    if (recent && static_cast<std::int32_t>(value - flow.recent_timestamp) < 0) {
      ++context_.counters.duplicates;
      if (segment.length() > 0) {
        if (segment.end() <= flow.receive_next) Reception::report_duplicate(flow, {segment.sequence, segment.end()});
        flow.wants_ack = true;
        flows_.make_ready(flow);
      }
      return false;
    }
  }
  const Sequence begin =
      segment.has(flag::syn) && flow.state == FlowState::syn_received ? segment.sequence + 1 : segment.sequence;
  // A peer that has not seen its smaller window still sends, acknowledges and resets in the former one.
  const bool is_beyond = begin > flow.receive_edge && (!flow.slow->edge_shrank || begin > flow.slow->edge_told);
  if (segment.end() < flow.receive_next || is_beyond) {
    if (reset) return false;
    ++context_.counters.duplicates;
    // Segments with data are always answered, otherwise their sender would repeat them; others seldom, otherwise two
    // ends that disagree would answer each other endlessly.
    if (segment.length() > 0 && !segment.has(flag::syn)) {
      if (segment.end() <= flow.receive_next) Reception::report_duplicate(flow, {begin, segment.end()});
      flow.wants_ack = true;
      flows_.make_ready(flow);
    } else {
      flows_.challenge(flow, now);
    }
    return false;
  }
  if (segment.options.timestamps && !reset && segment.sequence <= flow.ack_sent)
    flow.recent_timestamp = segment.options.timestamps->value;
  flow.heard_ms = context_.timestamp(0, now);
  return true;
}

// Only about a segment in flight, so that a node that does not see the flow cannot forge a message (RFC 5927).
void SegmentArrival::receive_unreachable(Flow& flow, const IcmpUnreachable& icmp, TimeNs now) {
  if (icmp.sequence < flow.una || icmp.sequence >= flow.next) return context_.drop(Drop::bad_icmp);
  using Why = IcmpUnreachable::Why;
  const IpFamily family = flow.key.family();
  if (icmp.why == Why::too_big) {
    constexpr std::uint16_t next_smaller = 1280;  // of routers that do not say (RFC 1191, 7.1, in short)
    const std::uint16_t mtu = std::max(icmp.mtu != 0 ? icmp.mtu : next_smaller, context_.path_mtu_least(family));
    const auto mss = static_cast<std::uint16_t>(context_.mss_of_mtu(family, mtu) - (flow.timestamps ? 12u : 0u));
    if (mss >= flow.mss) return;
    flow.slow->mss_before = std::max(flow.slow->mss_before, flow.mss);
    flow.slow->search = {};
    flow.slow->mss_again_at = now + context_.options.path_mtu_ns;
    flow.mss = mss;
    flows_.arm(flow);
    // Too large segments are sent again in smaller pieces; their loss is not a sign of congestion.
    if (flow.state < FlowState::established || flow.next == flow.una) return;
    scoreboard(flow).lose_all(flow.una, flow.next);
    if (Repair* const repair = flow.slow->repair.get()) {
      if (flow.repairing && !flow.timed_out)
        flow.congestion.window = std::max(flow.congestion.window, repair->rate.target());
      *repair = {};
    }
    flow.timing = false;
    flow.repairing = flow.resend_now = true;
    flow.slow->recovery_point = flow.next;
    flows_.make_ready(flow);
    return;
  }
  // For an established flow this may be temporary (RFC 1122, 4.2.3.9).
  if (flow.state != FlowState::syn_sent) return;
  flows_.end(flow, icmp.why == Why::refused ? FlowError::refused : FlowError::unreachable);
}

}  // namespace offpath::tcp
