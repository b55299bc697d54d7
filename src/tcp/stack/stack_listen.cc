// Passive open: SYNs for listeners, half-open connections, cookies, and segments that belong to nothing.
#include "tcp/stack/stack.h"

namespace offpath::tcp {

void Stack::receive_unknown(const Segment& segment, const MacAddress& from, TimeNs now) {
  if (HalfOpen* half = half_open_.find(segment.key)) return receive_for_half_open(segment, *half, from, now);
  const auto listener = listeners_.find(segment.key.local.port);
  if (segment.has(flag::rst)) return;
  if (listener == listeners_.end()) return refuse(segment, from);
  if (segment.has(flag::ack)) {
    if (segment.has(flag::syn) || now >= cookies_until_) return refuse(segment, from);
    // While cookies are about, what does not bring one may be of a flow whose first segment was lost: that comes again.
    static_cast<void>(receive_cookie(segment, listener->second, now));
    return;
  }
  if (segment.has(flag::syn)) receive_syn(segment, listener->second, from, now);
}

void Stack::receive_syn(const Segment& segment, const Listener& listener, const MacAddress& from, TimeNs now) {
  if (next_hop(segment.key.remote.address).value == 0) return;
  HalfOpen* half = half_open_.add(segment.key);
  HalfOpen without_place;
  const bool cookie = half == nullptr;
  if (cookie) {
    if (!options_.syn_cookies) {
      ++counters_.syns_dropped;
      return;
    }
    half = &without_place;
    half->key = segment.key;
  }
  half->irs = segment.sequence;
  half->peer = segment.options;
  half->peer_window = segment.window;
  half->ecn = asks_for_ecn(segment) && !cookie;
  half->timestamp_offset = static_cast<std::uint32_t>(keyed_hash(timestamp_key_, segment.key));
  half->iss = cookie ? cookies_.make(segment.key, segment.sequence, segment.options.mss.value_or(536), now)
                     : initial_sequence(segment.key, now);
  if (cookie) {  // the count is all cores', and a flood need not touch it
    ++counters_.cookies_out;
    cookies_until_ = now + SynCookies::valid_ns;
  } else {
    half->begun = count_begun();
    half_open_.set_timer(segment.key, now + options_.rto.initial_ns);
  }
  send_syn_ack(*half, listener, cookie, from, now);
}

void Stack::send_syn_ack(const HalfOpen& half, const Listener& listener, bool cookie, const MacAddress& to,
                         TimeNs now) {
  Segment segment;
  segment.key = half.key;
  segment.sequence = half.iss;
  segment.acknowledgement = half.irs + 1;
  segment.flags = static_cast<std::uint8_t>(flag::syn | flag::ack | (half.ecn ? flag::ece : 0));
  segment.window = static_cast<std::uint16_t>(std::min<std::uint64_t>(listener.receive_bytes, 65'535));
  segment.options.mss = own_mss();
  // Without timestamps a cookie has no room for what the SYN said of scale and SACK.
  const bool all = !cookie || half.peer.timestamps;
  if (half.peer.window_scale && all) segment.options.window_scale = own_scale();
  segment.options.sack_permitted = half.peer.sack_permitted && all;
  if (half.peer.timestamps) {
    std::uint32_t value = timestamp(half.timestamp_offset, now);
    if (cookie) value = SynCookies::mark_timestamp(value, half.peer);
    segment.options.timestamps = Timestamps{value, half.peer.timestamps->value};
  }
  send_stray(segment, to);
}

void Stack::receive_for_half_open(const Segment& segment, HalfOpen& half, const MacAddress& from, TimeNs now) {
  if (half.handed) return fast_->returned(*frame_);
  const auto listener = listeners_.find(segment.key.local.port);
  if (listener == listeners_.end()) {
    half_open_.remove(segment.key);
    return refuse(segment, from);
  }
  if (segment.has(flag::rst)) {
    if (segment.sequence == half.irs + 1) half_open_.remove(segment.key);
    return;
  }
  if (segment.has(flag::syn)) {
    if (segment.has(flag::ack)) return;
    // The same SYN again, or one of a peer that has begun anew.
    if (segment.sequence != half.irs) {
      half_open_.remove(segment.key);
      return receive_syn(segment, listener->second, from, now);
    }
    return send_syn_ack(half, listener->second, false, from, now);
  }
  if (!segment.has(flag::ack)) return;
  if (segment.acknowledgement != half.iss + 1) {
    // Its SYN came twice: a cookie was the answer to the first, and there was room again for the second.
    if (now >= cookies_until_) return refuse(segment, from);
    if (receive_cookie(segment, listener->second, now)) half_open_.remove(segment.key);
    return;
  }
  const std::uint32_t window =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(listener->second.receive_bytes, 65'535));
  if (segment.sequence < half.irs + 1 || segment.sequence > half.irs + 1 + window) return;
  if (fast_ != nullptr) {
    half.handed = true;
    return hand_over(half, listener->second, segment, now);
  }
  const HalfOpen copy = half;
  if (Flow* flow = establish(copy, listener->second, segment, now)) {
    half_open_.remove(segment.key);
    receive_segment(*flow, segment, from, now);
  }
}

bool Stack::receive_cookie(const Segment& segment, const Listener& listener, TimeNs now) {
  HalfOpen half;
  half.key = segment.key;
  half.iss = segment.acknowledgement - 1u;
  half.irs = segment.sequence - 1u;
  half.timestamp_offset = static_cast<std::uint32_t>(keyed_hash(timestamp_key_, segment.key));
  const auto mss = cookies_.check(segment.key, half.irs, half.iss, now);
  if (!mss) return false;
  half.peer.mss = *mss;
  if (segment.options.timestamps) {
    half.peer.timestamps = segment.options.timestamps;
    SynCookies::read_timestamp(segment.options.timestamps->echo, half.peer);
  }
  half.begun = count_begun();
  ++counters_.cookies_in;
  if (fast_ != nullptr) {
    hand_over(half, listener, segment, now);
    return true;
  }
  if (Flow* flow = establish(half, listener, segment, now)) receive_segment(*flow, segment, broadcast_mac, now);
  return true;
}

// Null if there is no room for it now: the peer's next segment asks again.
Flow* Stack::admit(const FlowKey& key, const Listener& listener, TimeNs now) {
  Flow* flow = new_flow(key, 0, listener.receive_bytes, listener.options, now);
  if (flow == nullptr) return nullptr;
  const auto tag = owner_.accept(listener.tag, id_of(*flow), key);
  if (!tag) {
    table_.erase(flow->key);
    free_flow(*flow);
    return nullptr;
  }
  flow->slow->tag = *tag;
  flow->slow->share = owner_.share(*tag);
  return flow;
}

Flow* Stack::establish(const HalfOpen& half, const Listener& listener, const Segment& segment, TimeNs now) {
  Flow* flow = admit(half.key, listener, now);
  if (flow == nullptr) return nullptr;
  take_half_open(*flow, half, segment, now);
  congestion_.begin(flow->congestion, flow->mss, now);
  ++counters_.accepted;
  established(*flow, now);
  return flow;
}

void Stack::take_half_open(Flow& flow, const HalfOpen& half, const Segment& segment, TimeNs now) const noexcept {
  flow.slow->iss = half.iss;
  flow.slow->begun = half.begun;
  flow.accepted = true;
  flow.timestamp_offset = half.timestamp_offset;
  flow.una = flow.next = half.iss + 1;
  flow.receive_next = flow.ack_sent = half.irs + 1;
  flow.receive_edge = flow.receive_next + static_cast<std::uint32_t>(std::min<std::uint64_t>(flow.allowed, 65'535));
  take_window(flow, half.peer_window, half.irs, half.iss);
  take_syn_options(flow, half.peer);
  flow.ecn = half.ecn;
  if (!flow.timestamps || !segment.options.timestamps || half.retries != 0) return;
  const std::uint32_t passed = timestamp(flow.timestamp_offset, now) - segment.options.timestamps->echo;
  if (passed < 60'000) flow.rtt.add(std::max<TimeNs>(passed, 1) * millisecond_ns, options_.rto);
}

void Stack::half_open_due(TimeNs now) {
  while (HalfOpen* half = half_open_.fire(now)) {
    const FlowKey key = half->key;
    const auto listener = listeners_.find(key.local.port);
    if (listener == listeners_.end() || half->retries >= options_.syn_ack_retries) {
      half_open_.remove(key);
      continue;
    }
    ++half->retries;
    half_open_.set_timer(key, now + (options_.rto.initial_ns << half->retries));
    if (half->handed) continue;  // the peer has answered
    if (const MacAddress* to =
            neighbours_.find(next_hop(key.remote.address), Neighbours::no_flow, Neighbours::peers, now))
      send_syn_ack(*half, listener->second, false, *to, now);
  }
}

}  // namespace offpath::tcp
