#include "tcp/stack/recovery.h"

#include "tcp/stack/ecn.h"

namespace offpath::tcp {

namespace {

constexpr std::uint8_t duplicates_of_a_loss = 3;

// Bytes behind `una` that have arrived. Without SACK each duplicate ACK stands for a segment.
std::uint32_t arrived(const Flow& flow) noexcept {
  if (!flow.sack) return std::uint32_t{flow.duplicates} * flow.mss;
  return flow.slow->scoreboard != nullptr ? flow.slow->scoreboard->selected(flow.una) : 0;
}

std::uint32_t losses(const Flow& flow) noexcept {
  return flow.slow->scoreboard != nullptr ? flow.slow->scoreboard->losses() : 0;
}

// While the loss of a probe alone is repaired, which is no congestion.
bool loses_more_than_probe(const Flow& flow) noexcept {
  const Scoreboard* const board = flow.slow->scoreboard.get();
  const Repair* const repair = flow.slow->repair.get();
  return !flow.timed_out && repair != nullptr && repair->of_probe && board != nullptr &&
         !board->lost_only({repair->from, repair->until});
}

}  // namespace

RecoveryMark Recovery::mark(const Flow& flow) noexcept { return {flow.una, arrived(flow), losses(flow)}; }

void Recovery::take_duplicate(Flow& flow, SequenceRange bytes, TimeNs now) {
  ++context_.counters.duplicates_reported;
  if (flow.tail_out && bytes.end == flow.slow->tail_end) {
    flow.tail_out = false;  // the probe was needless: nothing was lost
    return;
  }
  Repair* const repair = flow.slow->repair.get();
  // The network has duplicated other data, or has duplicated or split the acknowledgement with the report.
  if (repair == nullptr || repair->resent == 0 || bytes.begin < repair->from || bytes.end > repair->until ||
      bytes == repair->reported)
    return;
  repair->reported = bytes;
  if (!flow.repairing && flow.una > repair->expires) repair->may_undo = false;
  flow.slow->reordering.widen(flow.una, flow.next);
  repair->resent -= std::min(repair->resent, bytes.bytes());
  if (repair->resent == 0 && repair->may_undo && repair->trusts_reports) undo(flow, now);
}

void Recovery::judge_tail(Flow& flow, const Segment& segment, TimeNs now) {
  const FlowSlow& slow = *flow.slow;
  if (flow.una >= slow.tail_end) {
    flow.tail_out = false;
    // Everything has arrived. If the probe brought the end, a segment was lost; acknowledgements of earlier data are
    // older.
    const bool by_probe = !flow.timestamps || !segment.options.timestamps ||
                          static_cast<std::int32_t>(segment.options.timestamps->echo - slow.tail_ms) >= 0;
    if (!by_probe || flow.repairing) return;
    if (slow.repair != nullptr) slow.repair->may_undo = false;  // undoing that recovery would undo this, too
    context_.control(flow).on_loss(flow.congestion, slow.tail_flight, flow.mss, now);
  } else if (slow.scoreboard && slow.scoreboard->highest() >= slow.tail_end) {
    flow.tail_out = false;
    slow.scoreboard->lose_waiting();
  }
}

void Recovery::acknowledged(Flow& flow, const Segment& segment, const RecoveryMark& before, TimeNs now) {
  const std::int64_t progress = std::int64_t{bytes_between(before.una, flow.una)} + arrived(flow) - before.arrived;
  const auto newly = static_cast<std::uint32_t>(std::max<std::int64_t>(progress, 0));
  if (is_spurious(flow, segment, before)) undo(flow, now);
  find_losses(flow, newly, now);
  const bool safe = flow.una > before.una && losses(flow) <= before.losses;
  if (flow.repairing && !flow.timed_out && newly > 0) reduce(flow, newly, safe);
}

void Recovery::finish(Flow& flow) noexcept {
  Repair* const repair = flow.slow->repair.get();
  // Data that was not lost, but too large for the path, has no target.
  if (!flow.timed_out && repair != nullptr && repair->rate.target() != 0)
    flow.congestion.window = repair->rate.target();
  if (repair != nullptr) repair->expires = flow.next;  // a round trip later the window has changed
  flow.slow->reordering.recovered();
  flow.repairing = flow.timed_out = flow.resend_now = false;
}

void Recovery::judge_late(Flow& flow, TimeNs now) {
  flow.slow->judge_at = never;
  find_losses(flow, 0, now);
  if (!flow.repairing || flow.timed_out) return;
  // One at a time: acknowledgements pace the others.
  reduce(flow, 0, false);
  flow.congestion.window = std::max(flow.congestion.window, in_flight(flow) + flow.mss);
}

// A series of timeouts is one loss. The first answer may show that nothing was lost.
void Recovery::time_out(Flow& flow, TimeNs now) {
  ++context_.counters.timeouts;
  const bool first = flow.retries == 0 && !flow.timed_out;
  if (first) {
    begin(flow, true, now);
    flow.slow->repair->may_undo = !flow.repairing;  // something was lost before, and the window had begun to shrink
    if (!flow.timestamps && !flow.repairing) flow.slow->repair->trial = TimeoutTrial::first_answer;
  } else if (flow.slow->repair != nullptr) {
    flow.slow->repair->trial = TimeoutTrial::none;
  }
  context_.control(flow).on_timeout(flow.congestion, bytes_between(flow.una, flow.next), flow.mss, first, now);
  ++flow.retries;
  suspect_path(flow, now);
  scoreboard(flow).lose_all(flow.una, flow.next);
  flow.repairing = flow.timed_out = flow.resend_now = true;
  flow.timing = flow.tail_out = flow.wants_tail = false;
  flow.duplicates = 0;
  flow.slow->recovery_point = flow.next;
  flow.slow->judge_at = never;
  EcnFeedback::slow_down(flow);
  flow.retransmit_due = now + flow.rtt.timeout_ns(context_.options.rto, flow.retries);
  flows_.make_ready(flow);
}

// Timeouts in a row may mean that the path drops segments of this size without a message.
void Recovery::suspect_path(Flow& flow, TimeNs now) {
  constexpr std::uint8_t suspicious = 3, certain = 5;
  FlowSlow& slow = *flow.slow;
  if (!slow.search.probe().empty()) slow.search.lost(flow.mss);
  if (flow.retries != suspicious && flow.retries != certain) return;
  const IpFamily family = flow.key.family();
  const std::uint16_t least = context_.path_mtu_least(family),
                      mtu = flow.retries == suspicious ? std::max(PathSearch::first_mtu, least) : least;
  const auto mss = static_cast<std::uint16_t>(context_.mss_of_mtu(family, mtu) - (flow.timestamps ? 12u : 0u));
  if (mss >= flow.mss || bytes_between(flow.una, flow.next) <= mss) return;
  if (slow.mss_before < flow.mss) slow.mss_before = flow.mss;
  slow.search.begin(slow.mss_before);
  slow.mss_again_at = now + context_.options.path_mtu_ns;
  flow.mss = mss;
  ++context_.counters.paths_suspected;
}

// A lost probe is not congestion: its bytes leave again in smaller segments (RFC 4821, 7.6).
bool Recovery::lose_probe(Flow& flow) {
  FlowSlow& slow = *flow.slow;
  const SequenceRange probe = slow.search.probe();
  if (probe.empty() || !slow.scoreboard->lost_only(probe)) return false;
  slow.search.lost(flow.mss);
  if (slow.repair == nullptr) slow.repair = std::make_unique<Repair>();
  slow.repair->begin_of_probe(probe);
  return true;
}

void Recovery::begin(Flow& flow, bool timeout, TimeNs now) {
  auto& repair = flow.slow->repair;
  if (repair == nullptr) repair = std::make_unique<Repair>();
  repair->begin(flow.congestion, flow.una, flow.next, timeout, now);
}

void Recovery::find_losses(Flow& flow, std::uint32_t newly, TimeNs now) {
  FlowSlow& slow = *flow.slow;
  Scoreboard* board = slow.scoreboard.get();
  slow.judge_at = never;
  if (board != nullptr && flow.sack) {
    if (board->saw_reordering()) slow.reordering.saw_reordering();
    const TimeNs round_trip = flow.rtt.smoothed_ns();
    slow.judge_at = board->judge({.mss = flow.mss,
                                  .round_trip_ns = round_trip,
                                  .window_ns = slow.reordering.window_ns(round_trip),
                                  .counts = !slow.reordering.seen(),
                                  .recovers = flow.repairing},
                                 now);
    if (slow.judge_at != never) flows_.arm(flow);
  }
  const bool duplicates = !flow.repairing && !flow.sack && flow.duplicates >= duplicates_of_a_loss;
  const bool lost = board != nullptr && board->lost().has_value();
  const bool begins = !flow.repairing || loses_more_than_probe(flow);
  if (begins && flow.next != flow.una && (duplicates || lost)) {
    if (!lost) scoreboard(flow).lose_front(flow.una, flow.mss, flow.next);
    if (!lose_probe(flow)) {
      const std::uint32_t flight = bytes_between(flow.una, flow.next);
      begin(flow, false, now);
      context_.control(flow).on_loss(flow.congestion, flight, flow.mss, now);
      slow.repair->rate.begin(flight - std::min(flight, arrived(flow)) + newly, flow.congestion.window);
      EcnFeedback::slow_down(flow);
      ++context_.counters.repairs;
    }
    flow.repairing = flow.resend_now = true;
    flow.timed_out = flow.timing = flow.tail_out = flow.tail_due = flow.wants_tail = false;
    flow.slow->recovery_point = flow.next;
  }
  if (slow.scoreboard != nullptr || flow.duplicates > 0) flows_.make_ready(flow);
}

void Recovery::reduce(Flow& flow, std::uint32_t newly, bool safe) noexcept {
  Repair* const repair = flow.slow->repair.get();
  if (repair == nullptr || repair->rate.target() == 0) return;
  flow.congestion.window = repair->rate.window(in_flight(flow), newly, safe, flow.mss);
}

bool Recovery::is_spurious(Flow& flow, const Segment& segment, const RecoveryMark& before) noexcept {
  Repair* const repair = flow.slow->repair.get();
  if (repair == nullptr || !repair->may_undo) return false;
  if (flow.una == before.una) {
    // Something behind the first segment has arrived, and not that one: it was lost.
    if (arrived(flow) > before.arrived || flow.duplicates > 0) repair->trial = TimeoutTrial::none;
    return false;
  }
  if (repair->asks_echo && flow.una > repair->first) {
    repair->asks_echo = false;
    if (flow.timestamps && segment.options.timestamps)
      return static_cast<std::int32_t>(segment.options.timestamps->echo - repair->first_ms) < 0;
  }
  if (repair->trial == TimeoutTrial::none) return false;
  const bool spurious = repair->trial == TimeoutTrial::new_data;
  // All retransmissions have to be acknowledged first, so that the next acknowledged data was sent once.
  const bool goes_on = !spurious && flow.una >= repair->first + repair->resent && flow.una < repair->until;
  repair->trial = goes_on ? TimeoutTrial::new_data : TimeoutTrial::none;
  return spurious;
}

void Recovery::undo(Flow& flow, TimeNs now) {
  FlowSlow& slow = *flow.slow;
  Repair& repair = *slow.repair;
  repair.may_undo = repair.asks_echo = false;
  repair.trial = TimeoutTrial::none;
  ++context_.counters.undone;
  if (!repair.by_timeout) slow.reordering.saw_reordering();
  if (flow.repairing) {
    flow.repairing = flow.timed_out = flow.resend_now = false;
    flow.duplicates = 0;
    if (auto& board = slow.scoreboard) {
      board->forgive(flow.una, now);
      if (board->empty() && board->in_flight(flow.next) == bytes_between(flow.una, flow.next)) board.reset();
    }
  }
  context_.control(flow).undo(flow.congestion, repair.before, in_flight(flow), flow.mss, now - repair.began);
  flows_.make_ready(flow);
}

}  // namespace offpath::tcp
