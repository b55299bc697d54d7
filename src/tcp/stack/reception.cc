#include "tcp/stack/reception.h"
#include "tcp/flow/positions.h"

namespace offpath::tcp {

void Reception::receive(Flow& flow, const Segment& segment, TimeNs now) {
  if (segment.payload.empty() && !segment.has(flag::fin)) return;
  const bool receives = flow.state == FlowState::established || flow.state == FlowState::fin_wait_1 ||
                        flow.state == FlowState::fin_wait_2;
  if (!receives) {
    flow.wants_ack = true;  // behind its FIN, or that FIN again
    if (flow.state == FlowState::time_wait && segment.has(flag::fin))
      flow.retransmit_due = now + context_.options.time_wait_ns;
    return flows_.make_ready(flow);
  }
  Sequence begin = segment.has(flag::syn) ? segment.sequence + 1 : segment.sequence;
  const Sequence end = begin + static_cast<std::uint32_t>(segment.payload.size());
  // No program will read it (RFC 2525, 2.17). Also beyond the window: its sender would ask for room endlessly.
  if (flow.released && !segment.payload.empty() && end > flow.receive_next)
    return flows_.reset(flow, FlowError::reset, now);
  Bytes bytes = segment.payload;
  if (begin < flow.receive_next) {
    report_duplicate(flow, {begin, earlier(end, flow.receive_next)});
    bytes = bytes.subspan(std::min<std::size_t>(bytes.size(), bytes_between(begin, flow.receive_next)));
    begin = earlier(flow.receive_next, end);
  }
  const Sequence edge = allowed_edge(flow);
  if (end > edge) bytes = bytes.first(bytes.size() - std::min<std::size_t>(bytes.size(), bytes_between(edge, end)));
  if (flow.slow->fin_seen && begin + static_cast<std::uint32_t>(bytes.size()) > flow.slow->fin)
    return flows_.challenge(flow, now);
  if (segment.has(flag::fin) && end <= edge && end >= flow.receive_next && !flow.slow->fin_seen) {
    flow.slow->fin_seen = true;
    flow.slow->fin = end;
  }
  if (flow.ecn && !flow.accurate && !segment.payload.empty()) ecn_.take_mark(flow, segment);
  if (bytes.empty()) {
    flow.wants_ack = true;  // a window probe, or all of it arrived before
    if (begin != segment.sequence || !segment.payload.empty()) ++context_.counters.duplicates;
    flows_.make_ready(flow);
  } else if (begin == flow.receive_next) {
    owner_.store(flows_.id_of(flow), flow.slow->tag, flow.received, bytes);
    const bool filled = flow.slow->reassembly != nullptr;
    take_in_order(flow, begin + static_cast<std::uint32_t>(bytes.size()));
    if (filled) flow.wants_ack = true;
    if (flow.sack && (filled || flow.acks_owed > 0)) owe_twice(flow);
    owe_acknowledgement(flow, static_cast<std::uint32_t>(bytes.size()), now);
  } else {
    ++context_.counters.out_of_order;
    auto& reassembly = flow.slow->reassembly;
    if (reassembly == nullptr) reassembly = std::make_unique<Reassembly>();
    if (const SequenceRange range{begin, begin + static_cast<std::uint32_t>(bytes.size())}; reassembly->contains(range))
      report_duplicate(flow, range);
    if (reassembly->add({begin, begin + static_cast<std::uint32_t>(bytes.size())}))
      owner_.store(flows_.id_of(flow), flow.slow->tag, flow.received + bytes_between(flow.receive_next, begin), bytes);
    flow.wants_ack = true;
    if (flow.sack)
      owe_twice(flow);
    else if (flow.acks_owed < 255)
      ++flow.acks_owed;
    flows_.make_ready(flow);
  }
  if (flow.slow->fin_seen && flow.receive_next == flow.slow->fin) receive_fin(flow, now);
}

// One acknowledgement serves a burst. With a gap, a burst of several segments is acknowledged twice: if the only one
// were lost, a peer amid a repair would wait for its timeout.
void Reception::owe_twice(Flow& flow) noexcept {
  constexpr std::uint8_t acks_of_a_burst = 2;
  if (flow.acks_owed < acks_of_a_burst) ++flow.acks_owed;
}

void Reception::report_duplicate(Flow& flow, SequenceRange range) noexcept {
  if (flow.accurate) flow.slow->accurate->arrived_again();
  if (!flow.sack) return;
  SequenceRange& known = flow.slow->duplicate;
  if (known.empty())
    known = range;
  else if (range.begin <= known.end && known.begin <= range.end)
    known = {earlier(known.begin, range.begin), later(known.end, range.end)};
}

void Reception::take_in_order(Flow& flow, Sequence next) {
  if (auto& reassembly = flow.slow->reassembly) {
    next = reassembly->advance(next);
    if (reassembly->empty()) reassembly.reset();
  }
  const std::uint32_t bytes = bytes_between(flow.receive_next, next);
  if (flow.accurate) flow.slow->accurate->arrived_in_order();
  flow.receive_next = next;
  flow.received += bytes;
  context_.counters.payload_in += bytes;
  flows_.note(flow, change::received);
}

void Reception::receive_fin(Flow& flow, TimeNs now) {
  flow.receive_next += 1;
  flow.receive_edge = later(flow.receive_edge, flow.receive_next);
  flow.wants_ack = true;
  flow.slow->reassembly.reset();
  flows_.note(flow, change::finished);
  flows_.make_ready(flow);
  if (flow.state == FlowState::established) return flows_.enter(flow, FlowState::close_wait, now);
  if (flow.state == FlowState::fin_wait_1) return flows_.enter(flow, FlowState::closing, now);
  flows_.enter(flow, FlowState::time_wait, now);
}

// At once for two segments' worth, while the peer probes for its window, and on request; otherwise a little later, when
// data may carry it.
void Reception::owe_acknowledgement(Flow& flow, std::uint32_t bytes, TimeNs now) {
  const TimeNs delay = flow.slow->options.delayed_ack_ns;
  const bool quick = flow.quick_acks > 0;
  if (quick) --flow.quick_acks;
  if (flow.wants_ack || quick || delay == 0 || bytes_between(flow.ack_sent, flow.receive_next) >= 2u * flow.mss ||
      bytes > flow.mss) {
    flow.wants_ack = true;
    return flows_.make_ready(flow);
  }
  if (flow.ack_due != never) return;
  flow.ack_due = now + delay;
  flows_.arm(flow);
}

}  // namespace offpath::tcp
