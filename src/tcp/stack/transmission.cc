#include "tcp/stack/transmission.h"
#include "tcp/flow/positions.h"
#include "tcp/flow/waiting.h"
#include "tcp/segment/frame_writer.h"
#include "tcp/stack/ecn.h"

namespace offpath::tcp {

namespace {

constexpr unsigned segments_a_turn = 16;
constexpr std::uint32_t super_segment_bytes_max = 64'000;  // with its headers it fits the length of a datagram

}  // namespace

TcpOptions Transmission::options_of(const Flow& flow, TimeNs now) const noexcept {
  TcpOptions options;
  if (flow.timestamps)
    options.timestamps = Timestamps{context_.timestamp(flow.timestamp_offset, now), flow.recent_timestamp};
  const FlowSlow& slow = *flow.slow;
  if (flow.accurate) options.ecn_bytes = slow.accurate->bytes();
  if (!flow.sack) return options;
  std::size_t blocks_max = flow.timestamps ? 3 : 4;
  if (options.ecn_bytes) {
    // SACK blocks have priority over counts of marks if there is no room for two blocks (RFC 9768, 3.2.3.3).
    const std::size_t before = (flow.timestamps ? 12u : 0u) + 4u + ecn_option_bytes(*options.ecn_bytes),
                      room = (tcp_options_bytes_max - before) / 8;
    if (room < 2 && (slow.reassembly != nullptr || !slow.duplicate.empty()))
      options.ecn_bytes.reset();
    else
      blocks_max = std::min(blocks_max, room);
  }
  const auto add = [&](SequenceRange range) {
    if (options.sack_count < blocks_max) options.sack[options.sack_count++] = range;
  };
  const auto ranges = slow.reassembly != nullptr ? slow.reassembly->ranges() : std::span<const SequenceRange>();
  if (slow.duplicate.empty()) {
    for (const SequenceRange& range : ranges.first(std::min(ranges.size(), blocks_max))) add(range);
    return options;
  }
  // A duplicate range comes first; the range that contains it, if not acknowledged, second (RFC 2883, 4).
  const auto contains = [&](const SequenceRange& range) {
    return range.begin <= slow.duplicate.begin && slow.duplicate.end <= range.end;
  };
  add(slow.duplicate);
  for (const bool around : {true, false})
    for (const SequenceRange& range : ranges)
      if (contains(range) == around) add(range);
  return options;
}

std::uint32_t Transmission::chunk_bytes(const Flow& flow) const noexcept {
  if (!may_be_cut(flow)) return flow.mss;
  std::uint32_t most = std::min(context_.port.segmentation_bytes, super_segment_bytes_max);
  if (flow.congestion.rate != 0) {
    // A millisecond's worth: what leaves in one piece is not paced.
    const std::uint64_t paced = std::max<std::uint64_t>(flow.congestion.rate / 1000, 2u * flow.mss);
    most = static_cast<std::uint32_t>(std::min<std::uint64_t>(most, paced));
  }
  return std::max<std::uint32_t>(most / flow.mss, 1) * flow.mss;
}

// Whether the device may make several packets of a segment.
bool Transmission::may_be_cut(const Flow& flow) const noexcept {
  return context_.port.segmentation_bytes > 0 && (!flow.accurate || flow.slow->accurate->may_be_cut());
}

// Sends the sequence numbers of `range`, or fewer if the owner has less data; the number behind the data is a FIN.
// Returns how many.
std::uint32_t Transmission::emit(Flow& flow, SequenceRange range, std::uint8_t flags, const MacAddress& to, TimeNs now,
                                 std::uint16_t probe_bytes) {
  const Sequence end = data_end(flow);
  auto payload_bytes = static_cast<std::uint32_t>(std::max(earlier(range.end, end) - range.begin, 0));
  bool fin = flow.fin_wanted && range.end > end && !range.empty();
  Segment segment;
  segment.key = flow.key;
  segment.sequence = range.begin;
  segment.options = options_of(flow, now);
  // SACK blocks and counts of marked bytes take their room from the payload of each segment.
  std::size_t blocks = segment.options.sack_count == 0 ? 0 : 4u + 8u * segment.options.sack_count;
  if (segment.options.ecn_bytes) blocks += ecn_option_bytes(*segment.options.ecn_bytes);
  const bool is_new = range.begin == flow.next;
  // If no device cuts segments, new data is cut here to make room for the counts. Retransmissions keep their size.
  if (segment.options.ecn_bytes && is_new && probe_bytes == 0 && !may_be_cut(flow) &&
      payload_bytes + blocks > flow.mss) {
    payload_bytes = flow.mss - static_cast<std::uint32_t>(blocks);
    fin = false;
  }
  Payload payload{};
  if (payload_bytes > 0) {
    const std::uint64_t position = flow.acknowledged + bytes_between(flow.una, range.begin);
    payload = owner_.payload(flows_.id_of(flow), flow.slow->tag, position, payload_bytes);
    const auto there = static_cast<std::uint32_t>(payload[0].size() + payload[1].size());
    OFP_ASSERT(there <= payload_bytes);
    if (there < payload_bytes) fin = false;
    if (there == 0) return 0;
    payload_bytes = there;
    if (range.begin + payload_bytes == end) flags |= flag::psh;
  }
  segment.flags = flags | flag::ack;
  segment.traffic_class = flow.slow->options.traffic_class(flow.key.family());
  if (fin) segment.flags |= flag::fin;
  segment.acknowledgement = flow.receive_next;
  segment.window = advertise(flow);
  const bool pure = payload_bytes == 0 && !fin && segment.options.sack_count == 0;
  if (flow.ecn) EcnFeedback::mark_capable(flow, segment, payload_bytes > 0 && is_new, pure);
  FrameToSend& frame = frames_.next();
  write_segment_frame(segment, payload, static_cast<std::uint16_t>(std::max(flow.mss, probe_bytes) - blocks),
                      context_.port.mac, to, context_.port.checksum, frame);
  if (frame.segment_bytes != 0 && !may_be_cut(flow)) {
    // No more than one segment may be sent: without the blocks it is one.
    segment.options.sack_count = 0;
    segment.options.ecn_bytes.reset();
    write_segment_frame(segment, payload, flow.mss, context_.port.mac, to, context_.port.checksum, frame);
  }
  ++context_.counters.segments_out;
  context_.counters.payload_out += payload_bytes;
  if (segment.options.sack_count > 0) flow.slow->duplicate = {};
  if (flow.accurate) {
    AccurateEcn& own = *flow.slow->accurate;
    own.told(pure, segment.options.ecn_bytes.has_value());
    if (is_new && payload_bytes > 0)
      own.sent.sent({range.begin, range.begin + payload_bytes},
                    frame.segment_bytes != 0 ? frame.segment_bytes : payload_bytes);
    else if (is_new && fin)
      own.sent.sent({range.begin, range.begin + 1u}, 1);
  }
  flow.ack_sent = flow.receive_next;
  flow.wants_ack = false;
  flow.ack_due = never;
  return payload_bytes + (fin ? 1 : 0);
}

void Transmission::serve(Flow& flow, TimeNs now) {
  if (flow.elsewhere) return;
  const MacAddress* to = routes_.await(flow, now);
  if (to == nullptr) {
    // The flow is woken when the neighbour is found or given up, or by its timer if too many flows wait already.
    if (flow.retransmit_due == never)
      flow.retransmit_due = now + flow.rtt.timeout_ns(context_.options.rto, flow.retries);
    return flows_.arm(flow);
  }
  if (flow.wants_syn) return send_synchronizing(flow, *to, now);
  if (flow.state == FlowState::syn_sent || flow.state == FlowState::syn_received) return;
  for (; flow.acks_owed > 1 && frames_.has_room(); --flow.acks_owed) {
    emit(flow, {flow.next, flow.next}, 0, *to, now);
    flow.wants_ack = true;  // the last one, perhaps with data
  }
  flow.acks_owed = 0;
  // Only a pure acknowledgement reports the mark of the peer's SYN-ACK.
  if (flow.accurate && flow.wants_ack && flow.slow->accurate->answers_syn_ack() && frames_.has_room())
    emit(flow, {flow.next, flow.next}, 0, *to, now);
  const unsigned turns = may_be_cut(flow) ? 1 : segments_a_turn;
  bool more = flow.state != FlowState::time_wait;
  for (unsigned turn = 0; more && turn < turns && frames_.has_room(); ++turn)
    more = send_lost(flow, *to, now) || send_new(flow, *to, now);
  if (!more) flow.slow->flight_sent = bytes_between(flow.una, flow.next);
  if (flow.wants_tail && frames_.has_room()) send_tail(flow, *to, now);
  if (flow.wants_probe && frames_.has_room()) {
    // An old, acknowledged number: a living peer answers with the expected number and its window.
    emit(flow, {flow.una - 1u, flow.una - 1u}, 0, *to, now);
    flow.wants_probe = false;
  }
  if (flow.wants_ack && frames_.has_room()) emit(flow, {flow.next, flow.next}, 0, *to, now);
  if (more || flow.wants_ack || flow.wants_probe || flow.wants_tail) flows_.make_ready(flow);
  // No data is in flight that an answer could follow, and data cannot be sent: probes the window.
  if (flow.una == flow.next && flow.next != data_end(flow) && flow.retransmit_due == never && flow.paced_until == 0) {
    flow.retransmit_due = now + flow.rtt.timeout_ns(context_.options.rto, flow.slow->probes);
    begin_waiting(flow, now);
  }
  flows_.arm(flow);
  if (flow.state == FlowState::time_wait && other_.slow != nullptr && !flow.wants_ack) {
    // It has sent its last acknowledgement; the slow path repeats that if it has to.
    other_.slow->time_wait(handed_.write(flow));
    flows_.end(flow, FlowError::none);
  }
}

void Transmission::send_synchronizing(Flow& flow, const MacAddress& to, TimeNs now) {
  Segment segment;
  segment.key = flow.key;
  segment.sequence = flow.slow->iss;
  segment.flags = flag::syn;
  segment.traffic_class = flow.slow->options.traffic_class(flow.key.family());
  segment.window = static_cast<std::uint16_t>(std::min<std::uint64_t>(flow.allowed, 65'535));
  const bool answer = flow.state == FlowState::syn_received;
  if (!answer) segment.flags |= EcnFeedback::ask(flow, context_);
  if (answer) {
    segment.flags |= flag::ack;
    segment.acknowledgement = flow.receive_next;
    EcnFeedback::answer_syn(flow, context_, segment, now);
  }
  segment.options.mss = context_.own_mss(flow.key.family());
  segment.options.sack_permitted = !answer || flow.sack;
  if (!answer || flow.timestamps)
    segment.options.timestamps =
        Timestamps{context_.timestamp(flow.timestamp_offset, now), answer ? flow.recent_timestamp : 0};
  if (!answer || flow.receive_scale != 0 || flow.send_scale != 0) segment.options.window_scale = context_.own_scale();
  if (!frames_.has_room()) return flows_.make_ready(flow);
  write_segment_frame(segment, {}, flow.mss, context_.port.mac, to, context_.port.checksum, frames_.next());
  ++context_.counters.segments_out;
  flow.wants_syn = false;
  flow.timing = flow.next == flow.slow->iss;  // not for a retransmission
  flow.timed_at = now;
  flow.next = flow.slow->iss + 1;
  flow.timed = flow.next;
  begin_waiting(flow, now);
  flow.retransmit_due = now + flow.rtt.timeout_ns(context_.options.rto, flow.retries);
  flows_.arm(flow);
}

bool Transmission::send_lost(Flow& flow, const MacAddress& to, TimeNs now) {
  Scoreboard* board = flow.slow->scoreboard.get();
  if (board == nullptr || !flow.repairing) return false;
  Repair* const repair = flow.slow->repair.get();
  if (repair != nullptr && repair->trial == TimeoutTrial::new_data) {
    if (repair->trial_sent > 0 || sendable(flow) > 0) return false;
    repair->trial = TimeoutTrial::none;  // there is no new data for it
  }
  // One segment is tried: the acknowledgement of another one sent again would look like that of the first transmission.
  if (repair != nullptr && repair->trial == TimeoutTrial::first_answer && repair->resent > 0) return false;
  const auto lost = board->lost();
  if (!lost) return false;
  const std::uint32_t flight = in_flight(flow), window = flow.congestion.window;
  if (flight >= window && flight > 0 && !flow.resend_now) return false;
  const std::uint32_t room = window > flight ? window - flight : 0;
  const std::uint32_t most = flow.resend_now ? flow.mss : std::max<std::uint32_t>(room / flow.mss, 1) * flow.mss;
  const std::uint32_t bytes = std::min({lost->bytes(), chunk_bytes(flow), most});
  const std::uint32_t sent = emit(flow, {lost->begin, lost->begin + bytes}, 0, to, now);
  if (sent == 0) return false;
  const SequenceRange again{lost->begin, lost->begin + sent};
  board->resent(again, flow.next, now);
  flow.slow->search.sent_again(again);
  if (repair != nullptr) repair->sent_again(again, context_.timestamp(flow.timestamp_offset, now));
  context_.counters.retransmitted += sent;
  flow.resend_now = flow.timing = false;
  flow.retransmit_due = now + flow.rtt.timeout_ns(context_.options.rto, flow.retries);
  return true;
}

// The last segment again, unless new data has just left in its place; SACK then reports what is missing before it.
void Transmission::send_tail(Flow& flow, const MacAddress& to, TimeNs now) {
  flow.wants_tail = false;
  if (flow.una == flow.next || flow.repairing) return;
  const std::uint32_t bytes = std::min<std::uint32_t>(bytes_between(flow.una, flow.next), flow.mss);
  if (!flow.tail_due) {
    const std::uint32_t sent = emit(flow, {flow.next - bytes, flow.next}, 0, to, now);
    if (sent == 0) return;
    flow.slow->search.sent_again({flow.next - bytes, flow.next});
    context_.counters.retransmitted += sent;
    ++context_.counters.tail_probes;
  }
  flow.timing = flow.tail_due = false;
  flow.tail_out = true;
  flow.slow->tail_end = flow.next;
  flow.slow->tail_flight = bytes_between(flow.una, flow.next);
  flow.slow->tail_ms = context_.timestamp(flow.timestamp_offset, now);
  flow.retransmit_due = now + flow.rtt.timeout_ns(context_.options.rto, flow.retries);
}

// The number of new bytes that may leave in one piece now.
std::uint32_t Transmission::sendable(const Flow& flow) const noexcept {
  const std::uint32_t unsent = bytes_between(flow.next, later(data_end(flow), flow.next)), flight = in_flight(flow);
  const Sequence edge = flow.una + flow.send_window;
  const std::uint32_t by_window = edge > flow.next ? bytes_between(flow.next, edge) : 0;
  std::uint32_t by_congestion = flow.congestion.window > flight ? flow.congestion.window - flight : 0;
  if (flow.repairing) by_congestion = std::min(by_congestion, trial_room(flow));
  const std::uint32_t bytes = std::min({unsent, by_window, by_congestion, chunk_bytes(flow)});
  if (bytes >= flow.mss) return bytes == unsent ? bytes : bytes / flow.mss * flow.mss;
  // Less than a segment (RFC 9293, 3.8.6.2.1): the end of the data, unless Nagle waits for more; or if the window is
  // never larger and no data is in flight.
  if (flow.next == flow.una) return bytes;
  return bytes == unsent && (!flow.nagle || flow.fin_wanted) ? bytes : 0;
}

// During F-RTO's test for a spurious timeout: two segments (RFC 5682, 2.1, step 2).
std::uint32_t Transmission::trial_room(const Flow& flow) noexcept {
  const Repair* const repair = flow.slow->repair.get();
  if (repair == nullptr || repair->trial != TimeoutTrial::new_data) return ~0u;
  return 2u * flow.mss - std::min(repair->trial_sent, 2u * flow.mss);
}

// Begins to send after a pause.
void Transmission::resume(Flow& flow, TimeNs now) const noexcept {
  FlowSlow& slow = *flow.slow;
  if (slow.idle_since == 0 || flow.send_window == 0 || flow.next == data_end(flow)) return;
  context_.control(flow).on_idle(flow.congestion, flow.mss, now - slow.idle_since,
                                 flow.rtt.timeout_ns(context_.options.rto));
  slow.idle_since = 0;
}

// A segment larger than the known size of the path, amid others: acknowledgements of later segments show whether it
// arrived.
bool Transmission::send_probe(Flow& flow, const MacAddress& to, TimeNs now) {
  PathSearch& search = flow.slow->search;
  if (const SequenceRange probe = search.probe(); !probe.empty() && flow.una >= probe.end)
    flow.mss = search.arrived(flow.mss);
  const std::uint16_t bytes = search.next(flow.mss);
  const FlowSlow& slow = *flow.slow;
  if (bytes == 0 || !flow.sack || flow.repairing || flow.paced_until > now || slow.scoreboard != nullptr ||
      slow.reassembly != nullptr || !slow.duplicate.empty())
    return false;
  const std::uint32_t most = bytes + 3u * flow.mss, flight = bytes_between(flow.una, flow.next);
  if (bytes_between(flow.next, later(data_end(flow), flow.next)) < most || flight + most > flow.send_window ||
      flight + most > flow.congestion.window)
    return false;
  const Sequence begin = flow.next;
  const std::uint32_t sent = emit(flow, {begin, begin + bytes}, 0, to, now, bytes);
  if (sent == 0) return false;
  flow.next += sent;
  if (sent == bytes) search.sent(begin, bytes);
  begin_waiting(flow, now);
  if (flow.retransmit_due == never || flow.una == begin) await_acknowledgement(flow, context_.options.rto, now);
  return true;
}

bool Transmission::send_new(Flow& flow, const MacAddress& to, TimeNs now) {
  if (flow.fin_sent) return false;
  if (flow.paced_until != 0 && flow.congestion.rate == 0) flow.paced_until = 0;
  const Sequence end = data_end(flow);
  if (flow.una == flow.next) resume(flow, now);
  if (flow.slow->search.searches() && send_probe(flow, to, now)) return true;
  const std::uint32_t bytes = sendable(flow);
  if (bytes > 0 && flow.paced_until > now) return false;  // its timer makes it ready
  const bool fin = flow.fin_wanted && flow.next + bytes == end;
  if (bytes == 0 && !fin) return false;
  const Sequence begin = flow.next;
  const std::uint32_t sent = emit(flow, {begin, begin + bytes + (fin ? 1 : 0)}, 0, to, now);
  if (sent == 0) return false;
  flow.next += sent;
  if (flow.repairing && flow.slow->repair != nullptr) {
    flow.slow->repair->rate.sent(sent);
    flow.slow->repair->trial_sent += sent;
  }
  begin_waiting(flow, now);
  if (sent == bytes + 1) {
    flow.fin_sent = true;
    flow.state = flow.state == FlowState::close_wait ? FlowState::last_ack : FlowState::fin_wait_1;
  }
  if (!flow.timing && !flow.repairing) {
    flow.timing = true;
    flow.timed = flow.next;
    flow.timed_at = now;
  }
  const bool first = bytes_between(flow.una, begin) <= flow.mss;  // or the second, from which on a tail is probed
  if (first || flow.retransmit_due == never || flow.tail_due || flow.wants_tail)
    await_acknowledgement(flow, context_.options.rto, now);
  if (flow.congestion.rate != 0)
    flow.paced_until = std::max(now, flow.paced_until) +
                       static_cast<TimeNs>(double(sent) / static_cast<double>(flow.congestion.rate) * second_ns);
  return !flow.fin_sent;
}

}  // namespace offpath::tcp
