#include "tcp/stack/ecn.h"

#include "tcp/stack/handshake.h"

namespace offpath::tcp {

namespace {

constexpr std::uint8_t asking_retries_max = 1;  // SYNs that ask for accurate ECN again

}  // namespace

EcnMode ecn_asked_for(const Segment& syn, EcnUse use) noexcept {
  const bool classic = syn.has(flag::ece | flag::cwr);
  if (use != EcnUse::accurate) return classic ? EcnMode::classic : EcnMode::none;
  const std::uint8_t ace = ace_of(syn.flags);
  if (ace == 0) return EcnMode::none;
  return ace == ace_of(flag::ece | flag::cwr) ? EcnMode::classic : EcnMode::accurate;
}

std::uint16_t EcnFeedback::ask(Flow& flow, const StackContext& context) noexcept {
  constexpr std::uint16_t classic = flag::ece | flag::cwr, accurate = classic | flag::ae;
  // Some networks drop SYNs that ask for ECN: one repetition asks for accurate ECN, and no repetition for classic ECN
  // (RFC 9768, 3.1.4.1; RFC 3168, 6.1.1.1). The answer to any of them counts.
  if (context.options.ecn == EcnUse::accurate) {
    flow.accurate = true;
    return flow.retries <= asking_retries_max ? accurate : std::uint16_t{0};
  }
  flow.ecn = context.control(flow).wants_ecn() && flow.retries == 0;
  return flow.ecn ? classic : std::uint16_t{0};
}

// RFC 9768, table 2: AE, CWR and ECE report the mark of the SYN.
void EcnFeedback::take_syn_ack(Flow& flow, const Segment& segment, TimeNs now) {
  const std::uint8_t ace = ace_of(segment.flags);
  const bool classic = ace == 1 || (!flow.accurate && (ace & 3) == 1);
  if (!flow.accurate) {
    flow.ecn = flow.ecn && classic;
    return;
  }
  flow.accurate = false;
  flow.ecn = classic || confirms_accurate(ace);
  if (!flow.ecn || classic) return;
  AccurateEcn& own = be_accurate(flow);
  ++context_.counters.accurate_ecn;
  heed_handshake(flow, ace, now);
  own.count_syn_ack(segment.ecn, true);
  own.take_first_option(segment.options.ecn_bytes);
  own.try_option();
}

// Only a SYN-ACK that confirms accurate ECN gets its mark reported; marks of all count (RFC 9768, 3.2.2.1).
void EcnFeedback::take_syn_ack_again(Flow& flow, const Segment& segment) noexcept {
  if (!segment.has(flag::ack) || flow.accepted || segment.sequence + 1 != flow.receive_next) return;
  flow.slow->accurate->count_syn_ack(segment.ecn, confirms_accurate(ace_of(segment.flags)));
}

void EcnFeedback::heed_handshake(Flow& flow, std::uint8_t ace, TimeNs now) {
  const auto is = [ace](Ecn arrived) { return ace == ace_of_handshake(arrived); };
  if (is(Ecn::capable_0) || is(Ecn::capable_1) || is(Ecn::congested))
    flow.slow->accurate->do_not_mark();  // the path changes marks
  if (is(Ecn::congested)) context_.control(flow).on_loss(flow.congestion, flow.congestion.window, flow.mss, now);
}

void EcnFeedback::take_syn(Flow& flow, const Segment& syn) {
  flow.ecn = flow.accurate = false;
  if (context_.options.ecn != EcnUse::accurate) return;
  const EcnMode asked = ecn_asked_for(syn, context_.options.ecn);
  flow.ecn = asked != EcnMode::none;
  if (asked != EcnMode::accurate) return;
  AccurateEcn& own = be_accurate(flow);
  ++context_.counters.accurate_ecn;
  own.take_syn(syn.ecn);
  if (flow.retries > asking_retries_max) own.do_not_mark();  // the peer may have seen a SYN without ECN
}

bool EcnFeedback::take_syn_again(Flow& flow, const Segment& syn) const noexcept {
  if (context_.options.ecn != EcnUse::accurate || !flow.ecn) return true;
  const EcnMode asked = ecn_asked_for(syn, context_.options.ecn);
  if (flow.accurate) {
    flow.slow->accurate->take_syn(syn.ecn);
    if (asked == EcnMode::none) flow.slow->accurate->do_not_mark();
  }
  return asked == EcnMode::none || asked == (flow.accurate ? EcnMode::accurate : EcnMode::classic);
}

void EcnFeedback::answer_syn(Flow& flow, const StackContext& context, Segment& segment, TimeNs now) noexcept {
  if (!flow.ecn) return;
  if (!flow.accurate) {
    segment.flags |= flag::ece;
    return;
  }
  AccurateEcn& own = *flow.slow->accurate;
  const EcnAnswers::Answer answer = own.answers().next(now, context.options.rto.initial_ns);
  if (answer.flags)
    segment.flags |= ace_flags(own.ace_of_syn_ack());
  else
    own.do_not_mark();
  if (answer.option) segment.options.ecn_bytes = AccurateEcn::first();
}

void EcnFeedback::take_answer(Flow& flow, const Segment& segment, TimeNs now) {
  const std::uint8_t ace = ace_of(segment.flags);
  if (!confirms_accurate(ace)) flow.slow->accurate->do_not_mark();  // the peer may not know of it
  heed_handshake(flow, ace, now);
  flow.slow->accurate->take_first_option(segment.options.ecn_bytes);
}

void EcnFeedback::mark_capable(Flow& flow, Segment& segment, bool new_data, bool pure) noexcept {
  if (flow.accurate) {
    segment.flags |= ace_flags(flow.slow->accurate->ace(pure));
    if (new_data && flow.slow->accurate->may_mark()) segment.ecn = Ecn::capable_0;
    return;
  }
  if (flow.ecn_echo) segment.flags |= flag::ece;
  if (!new_data) return;
  segment.ecn = Ecn::capable_0;
  if (!flow.cwr_due) return;
  segment.flags |= flag::cwr;
  flow.cwr_due = false;
}

void EcnFeedback::take_mark(Flow& flow, const Segment& segment) {
  const bool marked = segment.ecn == Ecn::congested, before = flow.ecn_echo;
  context_.counters.marked_in += marked ? 1 : 0;
  if (context_.control(flow).wants_ecn() || segment.has(flag::cwr))
    flow.ecn_echo = marked;
  else
    flow.ecn_echo |= marked;
  if (flow.ecn_echo != before) flow.wants_ack = true;
}

bool EcnFeedback::count(Flow& flow, const Segment& segment) {
  context_.counters.marked_in += segment.ecn == Ecn::congested ? 1 : 0;
  return flow.slow->accurate->count(segment);
}

bool EcnFeedback::echoes(Flow& flow, const Segment& segment, const AccurateEcn::Arrived& newly, TimeNs now) {
  if (!flow.ecn || segment.has(flag::syn)) return false;  // a SYN-ACK's flags are not an echo
  if (!flow.accurate) {
    context_.counters.echoes_in += segment.has(flag::ece) ? 1 : 0;
    return segment.has(flag::ece);
  }
  const AccurateEcn::Marks marks = flow.slow->accurate->hear(segment, newly);
  if (!marks.any()) return false;
  ++context_.counters.echoes_in;
  if (marks.of_syn_ack) {
    heed_handshake(flow, ace_of_handshake(Ecn::congested), now);
    return false;
  }
  flow.slow->accurate->owe(marks.bytes);
  return true;
}

void EcnFeedback::take_echo(Flow& flow, bool echoes, std::uint32_t in_flight, TimeNs now) {
  if (flow.slowed_down && flow.una > flow.slow->slowed_down_until) flow.slowed_down = false;
  // A classic echo continues; an accurate one comes once, even with the last acknowledgement.
  if (!echoes || flow.slowed_down || flow.repairing || (flow.una == flow.next && !flow.accurate)) return;
  if (flow.slow->repair != nullptr) flow.slow->repair->may_undo = false;  // undoing that recovery would undo this, too
  const std::uint32_t used = !flow.accurate   ? bytes_between(flow.una, flow.next)
                             : in_flight != 0 ? in_flight
                                              : flow.congestion.window;
  if (!context_.control(flow).wants_ecn()) {
    context_.control(flow).on_loss(flow.congestion, used, flow.mss, now);
    // Not with short queues at which many flows meet: there all packets may be marked.
    if (flow.accurate) flow.slow->accurate->end_round();
  }
  slow_down(flow);
}

void EcnFeedback::slow_down(Flow& flow) noexcept {
  flow.slowed_down = flow.ecn;
  flow.cwr_due = flow.ecn && !flow.accurate;
  flow.slow->slowed_down_until = flow.next;
}

}  // namespace offpath::tcp
