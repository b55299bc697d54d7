#include "tcp/stack/passive_open.h"

#include "tcp/stack/ecn.h"

namespace offpath::tcp {

Flow* PassiveOpen::receive(const Segment& segment, const MacAddress& from, TimeNs now) {
  if (HalfOpen* half = half_open_.find(segment.key)) return receive_for_half_open(segment, *half, from, now);
  const Listener* const listener = listeners_.find(segment.key);
  Flow* flow = nullptr;
  if (segment.has(flag::rst)) return nullptr;
  if (listener == nullptr) {
    frames_.refuse(segment, from);
  } else if (segment.has(flag::ack)) {
    // While cookies are valid, a segment without one may belong to a connection whose first segment was lost and will
    // be repeated.
    if (segment.has(flag::syn) || now >= cookies_until_)
      frames_.refuse(segment, from);
    else
      static_cast<void>(receive_cookie(segment, *listener, flow, now));
  } else if (segment.has(flag::syn)) {
    receive_syn(segment, *listener, from, now);
  }
  return flow;
}

void PassiveOpen::receive_syn(const Segment& segment, const Listener& listener, const MacAddress& from, TimeNs now) {
  if (context_.next_hop(segment.key.remote.address).is_unspecified()) return;
  HalfOpen* half = half_open_.add(segment.key);
  HalfOpen without_place;
  const bool cookie = half == nullptr;
  if (cookie) {
    if (!context_.options.syn_cookies) {
      ++context_.counters.syns_dropped;
      return;
    }
    half = &without_place;
    half->key = segment.key;
  }
  half->irs = segment.sequence;
  half->peer = segment.options;
  half->peer_window = segment.window;
  half->ecn = cookie ? EcnMode::none : ecn_asked_for(segment, context_.options.ecn);
  half->syn_arrived = segment.ecn;
  half->timestamp_offset = static_cast<std::uint32_t>(keyed_hash(context_.timestamp_key, segment.key));
  half->iss = cookie ? cookies_.make(segment.key, segment.sequence,
                                     segment.options.mss.value_or(default_mss(segment.key.family())), now)
                     : context_.initial_sequence(segment.key, now);
  if (cookie) {  // all cores share the count, and a flood need not touch it
    ++context_.counters.cookies_out;
    cookies_until_ = now + SynCookies::valid_ns;
  } else {
    half->answered_at = now;
    half->begun = context_.count_begun();
    half_open_.set_timer(segment.key, now + context_.options.rto.initial_ns);
  }
  send_syn_ack(*half, listener, cookie, from, now);
}

void PassiveOpen::send_syn_ack(HalfOpen& half, const Listener& listener, bool cookie, const MacAddress& to,
                               TimeNs now) {
  Segment segment;
  segment.key = half.key;
  segment.sequence = half.iss;
  segment.acknowledgement = half.irs + 1;
  segment.flags = flag::syn | flag::ack;
  segment.traffic_class = listener.options.traffic_class(half.key.family());
  if (half.ecn == EcnMode::classic) segment.flags |= flag::ece;
  if (half.ecn == EcnMode::accurate) {
    const EcnAnswers::Answer answer = half.answers.next(now, context_.options.rto.initial_ns);
    if (answer.flags)
      segment.flags |= ace_flags(ace_of_handshake(half.syn_arrived));
    else
      half.may_mark = false;
    if (answer.option) segment.options.ecn_bytes = AccurateEcn::first();
  }
  segment.window = static_cast<std::uint16_t>(std::min<std::uint64_t>(listener.receive_bytes, 65'535));
  segment.options.mss = context_.own_mss(half.key.family());
  // Without timestamps a cookie has no room for the SYN's window scale and SACK.
  const bool all = !cookie || half.peer.timestamps;
  if (half.peer.window_scale && all) segment.options.window_scale = context_.own_scale();
  segment.options.sack_permitted = half.peer.sack_permitted && all;
  if (half.peer.timestamps) {
    std::uint32_t value = context_.timestamp(half.timestamp_offset, now);
    if (cookie) value = SynCookies::mark_timestamp(value, half.peer);
    segment.options.timestamps = Timestamps{value, half.peer.timestamps->value};
  }
  frames_.send(segment, to);
}

// RFC 9768, 3.1.5: the first SYN decides; one without ECN may be the peer's last attempt. No peer asks for both kinds
// of ECN.
bool PassiveOpen::accepts_again(const Segment& syn, HalfOpen& half) const noexcept {
  const EcnMode asked = ecn_asked_for(syn, context_.options.ecn);
  if (context_.options.ecn != EcnUse::accurate || half.ecn == EcnMode::none) return true;
  half.syn_arrived = syn.ecn;
  if (asked == EcnMode::none) half.may_mark = false;
  return asked == EcnMode::none || asked == half.ecn;
}

Flow* PassiveOpen::receive_for_half_open(const Segment& segment, HalfOpen& half, const MacAddress& from, TimeNs now) {
  if (half.handed) {
    other_.fast->returned(*other_.frame);
    return nullptr;
  }
  const Listener* const listener = listeners_.find(segment.key);
  if (listener == nullptr) {
    half_open_.remove(segment.key);
    frames_.refuse(segment, from);
    return nullptr;
  }
  if (segment.has(flag::rst)) {
    if (segment.sequence == half.irs + 1) half_open_.remove(segment.key);
    return nullptr;
  }
  if (segment.has(flag::syn)) {
    if (segment.has(flag::ack)) return nullptr;
    if (segment.sequence == half.irs) {
      if (!accepts_again(segment, half)) {
        half_open_.remove(segment.key);
        frames_.refuse(segment, from);
        return nullptr;
      }
      half.answered_at = 0;
      send_syn_ack(half, *listener, false, from, now);
    } else {  // the peer has begun again
      half_open_.remove(segment.key);
      receive_syn(segment, *listener, from, now);
    }
    return nullptr;
  }
  if (!segment.has(flag::ack)) return nullptr;
  if (segment.acknowledgement != half.iss + 1) {
    // Its SYN came twice: the first was answered by a cookie, and there was room again for the second.
    Flow* flow = nullptr;
    if (now >= cookies_until_)
      frames_.refuse(segment, from);
    else if (receive_cookie(segment, *listener, flow, now))
      half_open_.remove(segment.key);
    return flow;
  }
  const std::uint32_t window = static_cast<std::uint32_t>(std::min<std::uint64_t>(listener->receive_bytes, 65'535));
  if (segment.sequence < half.irs + 1 || segment.sequence > half.irs + 1 + window) return nullptr;
  const HalfOpen copy = half;
  half.answered_at = 0;  // without room the flow waits, and the time is not a round trip
  if (other_.fast != nullptr) {
    half.handed = true;
    handed_.give(copy, *listener, now);
    return nullptr;
  }
  Flow* const flow = establish(copy, *listener, now);
  if (flow != nullptr) half_open_.remove(segment.key);
  return flow;
}

bool PassiveOpen::receive_cookie(const Segment& segment, const Listener& listener, Flow*& flow, TimeNs now) {
  HalfOpen half;
  half.key = segment.key;
  half.iss = segment.acknowledgement - 1u;
  half.irs = segment.sequence - 1u;
  half.timestamp_offset = static_cast<std::uint32_t>(keyed_hash(context_.timestamp_key, segment.key));
  const auto mss = cookies_.check(segment.key, half.irs, half.iss, now);
  if (!mss) return false;
  half.peer.mss = *mss;
  if (segment.options.timestamps) {
    half.peer.timestamps = segment.options.timestamps;
    SynCookies::read_timestamp(segment.options.timestamps->echo, half.peer);
  }
  half.begun = context_.count_begun();
  ++context_.counters.cookies_in;
  if (other_.fast != nullptr)
    handed_.give(half, listener, now);
  else
    flow = establish(half, listener, now);
  return true;
}

Flow* PassiveOpen::admit(const FlowKey& key, const Listener& listener, TimeNs now) {
  Flow* flow = flows_.new_flow(key, 0, listener.receive_bytes, listener.options, now);
  if (flow == nullptr) return nullptr;
  const auto tag = owner_.accept(listener.tag, Flows::id_of(*flow), key);
  if (!tag) {
    flows_.withdraw(*flow);
    return nullptr;
  }
  flow->slow->tag = *tag;
  if (const FlowOptions* const options = owner_.options(*tag)) flow->begin_with(*options);
  flow->slow->share = owner_.share(*tag);
  return flow;
}

Flow* PassiveOpen::establish(const HalfOpen& half, const Listener& listener, TimeNs now) {
  Flow* flow = admit(half.key, listener, now);
  if (flow == nullptr) return nullptr;
  take_half_open(*flow, half, context_, now);
  context_.control(*flow).begin(flow->congestion, flow->mss, now);
  ++context_.counters.accepted;
  flows_.established(*flow, now);
  return flow;
}

void PassiveOpen::on_time(TimeNs now) {
  while (HalfOpen* half = half_open_.fire(now)) {
    const FlowKey key = half->key;
    const Listener* const listener = listeners_.find(key);
    if (listener == nullptr || half->retries >= context_.options.syn_ack_retries) {
      half_open_.remove(key);
      continue;
    }
    ++half->retries;
    half->answered_at = 0;
    half_open_.set_timer(key, now + (context_.options.rto.initial_ns << half->retries));
    if (half->handed) continue;  // the peer has answered
    if (const MacAddress* to = routes_.find_peer(key.remote.address, now))
      send_syn_ack(*half, *listener, false, *to, now);
  }
}

void PassiveOpen::handed_over(const FlowKey& key, bool declined) noexcept {
  HalfOpen* const half = half_open_.find(key);
  if (half == nullptr || !half->handed) return;
  if (declined)
    half->handed = false;  // its next segment, or the answer to our SYN, asks again
  else
    half_open_.remove(key);
}

}  // namespace offpath::tcp
