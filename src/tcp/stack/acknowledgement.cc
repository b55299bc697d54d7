#include "tcp/stack/acknowledgement.h"

#include <algorithm>

#include "tcp/flow/positions.h"
#include "tcp/flow/waiting.h"

namespace offpath::tcp {

namespace {

constexpr TimeNs many_ticks_ns = 8 * millisecond_ns;  // of the clock of timestamps
constexpr TimeNs echo_ns_max = 600 * second_ns;       // an older echo is ignored

}  // namespace

bool Acknowledgement::receive(Flow& flow, const Segment& segment, TimeNs now) {
  const Sequence ack = segment.acknowledgement;
  if (ack > flow.next) {
    flows_.challenge(flow, now);  // acknowledges bytes that were never sent
    return false;
  }
  // Old acknowledgements are common; those older than any window of the peer are guesses of an attacker (RFC 5961,
  // 5.2).
  if (ack < flow.una) {
    if (bytes_between(ack, flow.una) > flow.slow->send_window_most) {
      flows_.challenge(flow, now);
      return false;
    }
    return true;
  }
  const std::uint32_t window = std::uint32_t{segment.window} << (segment.has(flag::syn) ? 0 : flow.send_scale);
  const bool same_window = window == flow.send_window;
  if (flow.window_sequence < segment.sequence || (flow.window_sequence == segment.sequence && flow.window_ack <= ack)) {
    if (window != flow.send_window) flows_.make_ready(flow);
    if (window > 0) flow.slow->probes = 0;
    take_window(flow, window, segment.sequence, ack);
  }
  // A peer that answers is alive, even if its window stays closed.
  if (flow.send_window == 0)
    flow.retries = std::min<std::uint8_t>(flow.retries, 6),
    flow.slow->probes = std::min<std::uint8_t>(flow.slow->probes, 6);
  const bool repairs =
      flow.repairing || flow.duplicates > 0 || segment.options.sack_count > 0 || flow.slow->scoreboard != nullptr;
  const RecoveryMark before = repairs ? Recovery::mark(flow) : RecoveryMark{};
  if (flow.sack && segment.options.sack_count > 0) take_sack(flow, segment, now);
  const bool echoes =
      flow.ecn &&
      ecn_.echoes(flow, segment, flow.accurate ? newly_arrived(flow, segment, before) : AccurateEcn::Arrived{}, now);
  const std::uint32_t in_flight = bytes_between(flow.una, flow.next);
  if (ack > flow.una) {
    acknowledge(flow, segment, echoes, now);
  } else if (segment.payload.empty() && !segment.has(flag::fin) && same_window && flow.next != flow.una &&
             flow.duplicates < 255) {
    ++flow.duplicates;
  }
  if (flow.state == FlowState::closed) return false;
  if (flow.ecn) ecn_.take_echo(flow, echoes, in_flight, now);
  if (flow.tail_out) recovery_.judge_tail(flow, segment, now);
  if (repairs) recovery_.acknowledged(flow, segment, before, now);
  return true;
}

// The bytes whose arrival at the peer this acknowledgement reports for the first time.
AccurateEcn::Arrived Acknowledgement::newly_arrived(Flow& flow, const Segment& segment, const RecoveryMark& before) {
  const Sequence ack = segment.acknowledgement;
  SentPackets& sent = flow.slow->accurate->sent;
  std::uint32_t bytes = bytes_between(flow.una, ack), beyond = 0;
  if (Scoreboard* const board = flow.slow->scoreboard.get(); board != nullptr && flow.sack) {
    board->acknowledge(ack);
    bytes = board->selected(flow.una);
    board->each_selected(ack, [&](SequenceRange range) { beyond += sent.within(range); });
  } else if (bytes == 0 && segment.payload.empty() && flow.next != flow.una) {
    if (flow.sack) return {};
    // A duplicate stands for a segment.
    static_cast<void>(sent.arrived(ack, flow.duplicates + 1u));
    return {flow.mss, 1};
  }
  bytes -= std::min(bytes, before.arrived);
  return {bytes, sent.arrived(ack, beyond)};
}

void Acknowledgement::take_sack(Flow& flow, const Segment& segment, TimeNs now) {
  auto blocks = segment.options.sack;
  const std::size_t count = segment.options.sack_count;
  const SequenceRange first = blocks[0];
  // RFC 2883, 4: a first block below the acknowledgement, or within the second block, reports data that arrived twice.
  const bool within = count > 1 && blocks[1].begin <= first.begin && first.end <= blocks[1].end,
             is_duplicate = first.begin < first.end && (first.end <= segment.acknowledgement || within) &&
                            segment.acknowledgement - first.begin <= std::int64_t{flow.slow->send_window_most};
  if (is_duplicate) recovery_.take_duplicate(flow, first, now);
  const Sequence una = later(flow.una, segment.acknowledgement);
  if (flow.next == una) return;  // all data is acknowledged, so SACK blocks add nothing
  auto& board = flow.slow->scoreboard;
  if (board == nullptr) board = std::make_unique<Scoreboard>(una);
  // Treated as in order: segments that one acknowledgement reports together are not reordered.
  board->acknowledge(una);
  const auto begin = blocks.begin() + (is_duplicate ? 1 : 0), end = blocks.begin() + static_cast<std::ptrdiff_t>(count);
  std::sort(begin, end, [una](const SequenceRange& a, const SequenceRange& b) {
    return bytes_between(una, a.begin) < bytes_between(una, b.begin);
  });
  for (auto block = begin; block != end; ++block) board->select(*block, una, flow.next, now);
}

// The round trip by the peer's echo; 0: the echo is invalid.
TimeNs Acknowledgement::echo_delay(const Flow& flow, const Timestamps& peer, TimeNs now) const noexcept {
  const std::uint32_t ticks = context_.timestamp(flow.timestamp_offset, now) - peer.echo;
  const TimeNs delay = std::max<TimeNs>(TimeNs{ticks} * millisecond_ns, microsecond_ns);
  return delay <= echo_ns_max ? delay : 0;
}

void Acknowledgement::acknowledge(Flow& flow, const Segment& segment, bool echoes, TimeNs now) {
  // Of acknowledgements that come together, each finds less in flight than the one before; the used window is what was
  // sent.
  const std::uint32_t in_flight_before = std::max(bytes_between(flow.una, flow.next), flow.slow->flight_sent),
                      bytes = bytes_between(flow.una, segment.acknowledgement);
  const std::uint64_t data = std::min<std::uint64_t>(bytes, bytes_between(flow.una, data_end(flow)));
  const bool fin = flow.fin_sent && segment.acknowledgement == data_end(flow) + 1;
  flow.una = segment.acknowledgement;
  flow.acknowledged += data;
  flow.retries = 0;
  TimeNs rtt = 0, delay = 0;
  const bool starts = flow.congestion.window < flow.congestion.threshold;
  if (flow.timestamps && segment.options.timestamps && (starts || !flow.timing))
    delay = echo_delay(flow, *segment.options.timestamps, now);
  if (flow.timing && flow.una >= flow.timed) {
    rtt = std::max<TimeNs>(now - flow.timed_at, 1);
    flow.timing = false;
    context_.acknowledged.add(rtt);
    flow.rtt.add(rtt, context_.options.rto);
    flow.slow->reordering.add(rtt, now);
  } else if (const TimeNs known = flow.rtt.smoothed_ns();
             delay > 0 && !flow.timing &&
             (delay > known + millisecond_ns || (flow.repairing && known > many_ticks_ns))) {
    // An echo measures the transmission that it answers (RFC 7323, 4.1), even while everything is sent twice. Its clock
    // ticks each millisecond, so a sample counts only if it is longer than other measurements, or on a long path.
    flow.rtt.add(delay - millisecond_ns, context_.options.rto);
  }
  if (auto& board = flow.slow->scoreboard) {
    board->acknowledge(flow.una);
    if (board->saw_reordering()) flow.slow->reordering.saw_reordering();
    if (!flow.sack && flow.repairing && !flow.timed_out && flow.una < flow.slow->recovery_point) {
      board->lose_front(flow.una, flow.mss,
                        flow.next);  // a partial acknowledgement means another loss (RFC 6582, 3.2)
      const auto segments = static_cast<std::uint8_t>(std::min<std::uint32_t>(bytes / flow.mss, 255));
      flow.duplicates = flow.duplicates > segments ? static_cast<std::uint8_t>(flow.duplicates - segments) : 0;
      flow.resend_now = true;
    }
  }
  // Data that arrived while the window shrank does not make it grow (RFC 9937, 6).
  const bool reduced = flow.repairing && !flow.timed_out;
  if (flow.repairing && flow.una >= flow.slow->recovery_point) recovery_.finish(flow);
  if (!flow.repairing) flow.duplicates = 0;
  if (auto& board = flow.slow->scoreboard;
      board && board->empty() &&
      (flow.una == flow.next || board->in_flight(flow.next) == bytes_between(flow.una, flow.next)))
    board.reset();
  // A window that shrinks for marks does not grow for the same acknowledgement.
  if (!reduced && (!echoes || context_.control(flow).wants_ecn()))
    context_.control(flow).on_acknowledged(
        flow.congestion, {bytes, EcnFeedback::marked_bytes(flow, echoes, bytes), in_flight_before, flow.mss, rtt,
                          flow.rtt.smoothed_ns(), now, starts ? delay : 0});
  flow.retransmit_due = never;
  wait_on(flow, now);
  flow.tail_due = flow.wants_tail = false;
  if (flow.una != flow.next) await_acknowledgement(flow, context_.options.rto, now);
  if (data > 0) flows_.note(flow, change::acknowledged);
  if (fin) fin_acknowledged(flow, now);
  if (flow.state == FlowState::closed) return;
  flows_.arm(flow);
  flows_.make_ready(flow);
}

void Acknowledgement::fin_acknowledged(Flow& flow, TimeNs now) {
  if (flow.state == FlowState::fin_wait_1) return flows_.enter(flow, FlowState::fin_wait_2, now);
  if (flow.state == FlowState::closing) return flows_.enter(flow, FlowState::time_wait, now);
  if (flow.state == FlowState::last_ack) flows_.end(flow, FlowError::none);
}

}  // namespace offpath::tcp
