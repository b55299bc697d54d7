#include "tcp/stack/acknowledgement.h"
#include "tcp/flow/positions.h"
#include "tcp/flow/waiting.h"

namespace offpath::tcp {

namespace {

constexpr std::uint8_t duplicates_of_a_loss = 3;
constexpr TimeNs echo_ns_max = 600 * second_ns;  // an echo that is older makes no sense

}  // namespace

bool Acknowledgement::receive(Flow& flow, const Segment& segment, TimeNs now) {
  const Sequence ack = segment.acknowledgement;
  if (ack > flow.next) {
    flows_.challenge(flow, now);  // of what was never sent
    return false;
  }
  // Old ones are common; those older than any window that the peer told are somebody's guess (RFC 5961, 5.2).
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
  // Whoever answers is there, however long its window stays closed.
  if (flow.send_window == 0)
    flow.retries = std::min<std::uint8_t>(flow.retries, 6),
    flow.slow->probes = std::min<std::uint8_t>(flow.slow->probes, 6);
  if (flow.sack && segment.options.sack_count > 0) take_sack(flow, segment);
  if (ack > flow.una) {
    acknowledge(flow, segment, now);
  } else if (segment.payload.empty() && !segment.has(flag::fin) && same_window && flow.next != flow.una &&
             flow.duplicates < 255) {
    ++flow.duplicates;
  }
  if (flow.state == FlowState::closed) return false;
  if (flow.ecn) ecn_.take_echo(flow, segment, now);
  if (flow.tail_out) judge_tail(flow, segment, now);
  find_losses(flow, now);
  return true;
}

void Acknowledgement::take_sack(Flow& flow, const Segment& segment) {
  // Nothing can be selected of what is all acknowledged.
  if (flow.next == later(flow.una, segment.acknowledgement)) return;
  Scoreboard& board = scoreboard(flow);
  for (std::size_t i = 0; i < segment.options.sack_count; ++i)
    board.select(segment.options.sack[i], flow.una, flow.next);
}

void Acknowledgement::acknowledge(Flow& flow, const Segment& segment, TimeNs now) {
  // Of acknowledgements that come together each finds less on its way than the one before; what was used is what was
  // sent.
  const std::uint32_t in_flight_before = std::max(bytes_between(flow.una, flow.next), flow.slow->flight_sent),
                      bytes = bytes_between(flow.una, segment.acknowledgement);
  const std::uint64_t data = std::min<std::uint64_t>(bytes, bytes_between(flow.una, data_end(flow)));
  const bool fin = flow.fin_sent && segment.acknowledgement == data_end(flow) + 1;
  flow.una = segment.acknowledgement;
  flow.acknowledged += data;
  flow.retries = 0;
  TimeNs rtt = 0;
  if (flow.timing && flow.una >= flow.timed) {
    rtt = std::max<TimeNs>(now - flow.timed_at, 1);
    flow.timing = false;
    context_.acknowledged.add(rtt);
    flow.rtt.add(rtt, context_.options.rto);
  } else if (!flow.timing && flow.timestamps && segment.options.timestamps) {
    // Whichever transmission it answers (RFC 7323, 4.1), so a measure even while everything is sent twice; in
    // milliseconds.
    const TimeNs echo =
        std::max<TimeNs>(context_.timestamp(flow.timestamp_offset, now) - segment.options.timestamps->echo, 1) *
        millisecond_ns;
    if (echo <= echo_ns_max) flow.rtt.add(echo, context_.options.rto);
  }
  if (auto& board = flow.slow->scoreboard) {
    board->acknowledge(flow.una);
    if (!flow.sack && flow.repairing && !flow.timed_out && flow.una < flow.recovery_point) {
      board->lose_front(flow.una, flow.mss,
                        flow.next);  // a partial acknowledgement tells of the next loss (RFC 6582, 3.2)
      const auto segments = static_cast<std::uint8_t>(std::min<std::uint32_t>(bytes / flow.mss, 255));
      flow.duplicates = flow.duplicates > segments ? static_cast<std::uint8_t>(flow.duplicates - segments) : 0;
      flow.resend_now = true;
    }
  }
  if (flow.repairing && flow.una >= flow.recovery_point) flow.repairing = flow.timed_out = flow.resend_now = false;
  if (!flow.repairing) flow.duplicates = 0;
  if (auto& board = flow.slow->scoreboard;
      board && board->empty() &&
      (flow.una == flow.next || board->in_flight(flow.next) == bytes_between(flow.una, flow.next)))
    board.reset();
  const bool echoes = flow.ecn && segment.has(flag::ece);
  // A window that is to shrink for marks does not grow for the same acknowledgement.
  if ((!flow.repairing || flow.timed_out) && (!echoes || context_.congestion.wants_ecn()))
    context_.congestion.on_acknowledged(
        flow.congestion, {bytes, echoes ? bytes : 0, in_flight_before, flow.mss, rtt, flow.rtt.smoothed_ns(), now});
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

// The result of a tail loss probe (RFC 8985, 7.4).
void Acknowledgement::judge_tail(Flow& flow, const Segment& segment, TimeNs now) {
  const FlowSlow& slow = *flow.slow;
  if (flow.una >= slow.tail_end) {
    flow.tail_out = false;
    // All has arrived. If it was the probe that brought the end, a segment was lost; acknowledgements of what came
    // before it are older.
    const bool by_probe = !flow.timestamps || !segment.options.timestamps ||
                          static_cast<std::int32_t>(segment.options.timestamps->echo - slow.tail_ms) >= 0;
    if (by_probe && !flow.repairing) context_.congestion.on_loss(flow.congestion, slow.tail_flight, flow.mss, now);
  } else if (slow.scoreboard && slow.scoreboard->highest() >= slow.tail_end) {
    flow.tail_out = false;
    slow.scoreboard->lose_waiting();
  }
}

void Acknowledgement::find_losses(Flow& flow, TimeNs now) {
  Scoreboard* board = flow.slow->scoreboard.get();
  if (board != nullptr && flow.sack) board->judge(flow.mss, now, flow.rtt.smoothed_ns());
  const bool duplicates = !flow.repairing && flow.duplicates >= duplicates_of_a_loss && flow.next != flow.una;
  const bool lost = board != nullptr && board->lost().has_value();
  if (!flow.repairing && (duplicates || lost)) {
    const std::uint32_t before = bytes_between(flow.una, flow.next);
    if (!lost) scoreboard(flow).lose_front(flow.una, flow.mss, flow.next);
    context_.congestion.on_loss(flow.congestion, before, flow.mss, now);
    EcnFeedback::slow_down(flow);
    flow.repairing = flow.resend_now = true;
    flow.timed_out = flow.timing = flow.tail_out = flow.tail_due = flow.wants_tail = false;
    flow.recovery_point = flow.next;
    ++context_.counters.repairs;
  }
  if (flow.slow->scoreboard != nullptr || flow.duplicates > 0) flows_.make_ready(flow);
}

void Acknowledgement::fin_acknowledged(Flow& flow, TimeNs now) {
  if (flow.state == FlowState::fin_wait_1) return flows_.enter(flow, FlowState::fin_wait_2, now);
  if (flow.state == FlowState::closing) return flows_.enter(flow, FlowState::time_wait, now);
  if (flow.state == FlowState::last_ack) flows_.end(flow, FlowError::none);
}

}  // namespace offpath::tcp
