// Work that two stacks share: flows that change hands, and what each does for the other. Read slow_path.h first.
//
// A flow of a peer is half open at the slow path until the fast one has confirmed it; a flow that is begun here stands
// in both tables until then, `elsewhere` in one of them. What arrives in between goes to the slow path, for the fast
// one does not have it yet, and comes back behind the hand-over: nothing is refused that belongs to a flow, and no flow
// is in both.
#include "tcp/segment/ethernet.h"
#include "tcp/stack/stack.h"

namespace offpath::tcp {

namespace {

constexpr std::uint32_t round_trip_us_max = 600'000'000;
constexpr std::uint16_t timestamps_bytes = 12;  // that a segment's payload is smaller by

// Of the next hop; all zeros where it is not known.
MacAddress next_hop_mac(const wire::TcpHandedFlow& handed) noexcept {
  MacAddress mac;
  std::copy(std::begin(handed.next_hop_mac), std::end(handed.next_hop_mac), mac.begin());
  return mac;
}

}  // namespace

bool Stack::pass_on(const FlowKey& key, std::uint32_t index) {
  const bool elsewhere = index != FlowTable::nobody && flows_[index].elsewhere;
  if (fast_ != nullptr && elsewhere) {
    fast_->returned(*frame_);
    return true;
  }
  // What this stack has begun alone it goes on with.
  if (slow_ == nullptr || (!elsewhere && half_open_.find(key) != nullptr)) return false;
  if (!is_returned_) slow_->frame(*frame_, false);  // otherwise nobody wanted the flow, and its peer will see that
  return true;
}

wire::TcpHandedFlow Stack::handed(const Flow& flow) const noexcept {
  wire::TcpHandedFlow made{};
  made.key = slow_key(flow.key, flow.slow->attempt);
  made.una = flow.next.value();
  made.receive_next = flow.receive_next.value();
  made.send_window = flow.send_window;
  made.window_sequence = flow.window_sequence.value();
  made.window_ack = flow.window_ack.value();
  made.recent_timestamp = flow.recent_timestamp;
  made.round_trip_us =
      static_cast<std::uint32_t>(std::min<TimeNs>(flow.rtt.smoothed_ns() / microsecond_ns, round_trip_us_max));
  made.mss = flow.mss;
  made.send_scale = flow.send_scale;
  made.receive_scale = flow.receive_scale;
  made.flags =
      static_cast<std::uint8_t>((flow.timestamps ? wire::tcp_handed_timestamps : 0) |
                                (flow.sack ? wire::tcp_handed_sack : 0) | (flow.ecn ? wire::tcp_handed_ecn : 0));
  if (const MacAddress* mac = neighbours_.known(next_hop(flow.key.remote.address)))
    std::copy(mac->begin(), mac->end(), made.next_hop_mac);
  return made;
}

Status Stack::check(const wire::TcpHandedFlow& handed) const {
  const FlowKey key = flow_key(handed.key);
  const auto bad = [&](std::string_view what, std::uint64_t value) {
    return fail(Error::protocol, "a connection from {} to {} with {} {}", text_of(key.local), text_of(key.remote), what,
                value);
  };
  if (key.local.address != options_.address || key.local.port == 0) return bad("a local port of", key.local.port);
  if (!key.remote.address.is_unicast() || key.remote.address == options_.address || key.remote.port == 0 ||
      next_hop(key.remote.address).value == 0)
    return bad("a remote port of", key.remote.port);
  constexpr std::uint8_t flags = wire::tcp_handed_timestamps | wire::tcp_handed_sack | wire::tcp_handed_ecn;
  if ((handed.flags & ~flags) != 0) return bad("flags", handed.flags);
  if (handed.send_scale > window_scale_max) return bad("a window scale of", handed.send_scale);
  if (handed.receive_scale != 0 && handed.receive_scale != own_scale())
    return bad("a scale of this end of", handed.receive_scale);
  if (handed.send_window > std::uint32_t{65'535} << window_scale_max) return bad("a window of", handed.send_window);
  const std::uint32_t options = (handed.flags & wire::tcp_handed_timestamps) != 0 ? timestamps_bytes : 0;
  if (handed.mss + options < options_.mss_least || handed.mss + options > own_mss())
    return bad("segments of", handed.mss);
  if (handed.round_trip_us > round_trip_us_max) return bad("a round trip in us of", handed.round_trip_us);
  if (const MacAddress mac = next_hop_mac(handed); mac != MacAddress{} && !is_station(mac))
    return bad("a group's hardware address for its neighbour, which begins with", handed.next_hop_mac[0]);
  return {};
}

// Windows of this end are its own affair: what the owner allows bounds them, not what was said elsewhere.
void Stack::take_handed(Flow& flow, const wire::TcpHandedFlow& handed, TimeNs now) const noexcept {
  flow.una = flow.next = Sequence(handed.una);
  flow.slow->iss = flow.una - 1u;
  flow.receive_next = flow.ack_sent = Sequence(handed.receive_next);
  flow.receive_edge = flow.receive_next + static_cast<std::uint32_t>(std::min<std::uint64_t>(flow.allowed, 65'535));
  take_window(flow, handed.send_window, Sequence(handed.window_sequence), Sequence(handed.window_ack));
  flow.recent_timestamp = handed.recent_timestamp;
  flow.heard_ms = timestamp(0, now);
  flow.mss = handed.mss;
  flow.send_scale = handed.send_scale;
  flow.receive_scale = handed.receive_scale;
  flow.timestamps = (handed.flags & wire::tcp_handed_timestamps) != 0;
  flow.sack = (handed.flags & wire::tcp_handed_sack) != 0;
  flow.ecn = (handed.flags & wire::tcp_handed_ecn) != 0;
  if (handed.round_trip_us != 0) flow.rtt.add(TimeNs{handed.round_trip_us} * microsecond_ns, options_.rto);
}

void Stack::learn_next_hop(const wire::TcpHandedFlow& handed, TimeNs now) {
  const MacAddress mac = next_hop_mac(handed);
  if (!is_station(mac)) return;
  neighbours_.learn(next_hop({handed.key.remote_address}), mac, true, now);
  wake_waiting(now);
}

// ---- the fast one

void Stack::lean_on(SlowPath* slow) {
  slow_ = slow;
  if (slow_ != nullptr) {
    for (const auto& [port, listener] : listeners_) slow_->listen(port, listener.receive_bytes);
    return;
  }
  for (Flow& flow : flows_) {
    if (!flow.elsewhere || flow.state != FlowState::syn_sent) continue;
    flow.elsewhere = false;
    flow.wants_syn = true;
    make_ready(flow);
  }
}

Result<bool> Stack::adopt(const wire::TcpHandedFlow& handed, const ReceivedFrame* frame, TimeNs now) {
  OFP_TRY(check(handed));
  const FlowKey key = flow_key(handed.key);
  const std::uint32_t attempt = handed.key.attempt, index = table_.find(key);
  learn_next_hop(handed, now);
  if (index != FlowTable::nobody) {
    Flow& flow = flows_[index];
    if (attempt != (flow.elsewhere ? flow.slow->attempt : 0)) return false;
    if (flow.elsewhere) {
      flow.elsewhere = false;
      take_handed(flow, handed, now);
      flow.wants_ack = true;
      ++counters_.connected;
      congestion_.begin(flow.congestion, flow.mss, now);
      established(flow, now);
    }  // otherwise a cookie came back twice
  } else {
    const auto listener = listeners_.find(key.local.port);
    if (attempt != 0 || listener == listeners_.end()) return false;
    Flow* const flow = admit(key, listener->second, now);
    if (flow == nullptr) return false;
    flow->accepted = true;
    flow->slow->begun = count_begun();
    take_handed(*flow, handed, now);
    ++counters_.accepted;
    congestion_.begin(flow->congestion, flow->mss, now);
    established(*flow, now);
  }
  if (frame != nullptr) receive_returned(*frame, now);
  return true;
}

bool Stack::connect_failed(const FlowKey& key, std::uint32_t attempt, FlowError error) {
  const std::uint32_t index = table_.find(key);
  if (index == FlowTable::nobody) return false;
  Flow& flow = flows_[index];
  if (!flow.elsewhere || flow.slow->attempt != attempt) return false;
  flow.elsewhere = false;
  end(flow, error);
  return true;
}

void Stack::receive_returned(const ReceivedFrame& frame, TimeNs now) {
  if (frame.bytes.size() >= ethernet_header_bytes && read_ethernet_header(frame.bytes.data()).type == ethertype_arp)
    return drop(Drop::other_protocol);
  is_returned_ = true;
  receive(frame, now);
  is_returned_ = false;
}

Status Stack::learn_neighbour(Ipv4Address address, const MacAddress& mac, TimeNs now) {
  if (!address.is_unicast() || address == options_.address || !is_station(mac))
    return fail(Error::protocol, "{} as a neighbour, with a hardware address that begins with {:#x}", text_of(address),
                mac[0]);
  neighbours_.learn(address, mac, false, now);
  wake_waiting(now);
  return {};
}

Status Stack::send_frame(const FrameToSend& frame) {
  const Bytes bytes(frame.header.data(), frame.header_bytes);
  const auto bad = [&](std::string_view why) {
    return fail(Error::protocol, "a frame of {} bytes to be sent, {}", bytes.size(), why);
  };
  if (bytes.size() < ethernet_header_bytes) return bad("which is less than a header");
  const EthernetHeader header = read_ethernet_header(bytes.data());
  const Bytes body = bytes.subspan(ethernet_header_bytes);
  if (header.source != port_.mac) return bad("from another hardware address");
  if (header.type == ethertype_arp) {
    if (!read_arp(body) || frame.tcp_offset != 0 || frame.checksum_partial) return bad("which is no ARP");
  } else {
    Ipv4Packet packet;
    if (header.type != ethertype_ipv4 || read_ipv4(body, packet) != Drop::none || packet.protocol != protocol_tcp)
      return bad("which is no TCP");
    if (packet.source != options_.address) return bad("from another address");
    if (frame.tcp_offset != ethernet_header_bytes + ipv4_header_bytes || packet.payload.size() < tcp_header_bytes ||
        (frame.checksum_partial && !port_.checksum))
      return bad("with TCP at another place");
  }
  if (FrameToSend* const to = stray()) {
    *to = frame;
    counters_.segments_out += header.type == ethertype_ipv4 ? 1 : 0;
  }
  return {};
}

// It has sent its last acknowledgement, and from now on only says so again.
void Stack::hand_back(Flow& flow) {
  slow_->time_wait(handed(flow));
  end(flow, FlowError::none);
}

// ---- the slow one

void Stack::work_for(FastPath& fast, TimeNs cookies_until) noexcept {
  fast_ = &fast;
  cookies_until_ = cookies_until;
}

void Stack::hand_over(const HalfOpen& half, const Listener& listener, const Segment& segment, TimeNs now) {
  Flow flow;
  flow.slow = std::make_unique<FlowSlow>();
  flow.key = half.key;
  flow.allowed = listener.receive_bytes;
  flow.receive_scale = own_scale();
  take_half_open(flow, half, segment, now);
  static_cast<void>(neighbours_.find(next_hop(half.key.remote.address), Neighbours::no_flow, Neighbours::peers,
                                     now));  // it will be needed
  fast_->adopt(handed(flow), frame_);
}

// It stays as it is until the other stack has answered, and sends nothing.
void Stack::hand_over(Flow& flow, const ReceivedFrame* frame, TimeNs now) {
  flow.elsewhere = true;
  flow.wants_ack = false;
  static_cast<void>(neighbours_.find(next_hop(flow.key.remote.address), Neighbours::no_flow, asker(flow), now));
  fast_->adopt(handed(flow), frame);
}

void Stack::begin_connect(const FlowKey& key, std::uint32_t attempt, std::uint64_t receive_bytes, TimeNs now) {
  const std::uint32_t index = table_.find(key);
  if (index != FlowTable::nobody) {
    Flow& old = flows_[index];
    // The peer tells the new one from the old by its timestamps (RFC 6191, 2), which go on.
    if (old.state == FlowState::time_wait && !old.timestamps) return fast_->failed(key, attempt, FlowError::in_use);
    old.elsewhere = true;
    end(old, FlowError::none);
  }
  const bool possible = key.local.address == options_.address && key.local.port != 0 &&
                        key.remote.address.is_unicast() && key.remote.port != 0 &&
                        next_hop(key.remote.address).value != 0;
  Flow* const flow = possible ? new_flow(key, 0, receive_bytes, {}, now) : nullptr;
  if (flow == nullptr) return fast_->failed(key, attempt, FlowError::unreachable);
  flow->released = true;  // nobody waits for what becomes of it here
  flow->slow->attempt = attempt;
  begin_opening(*flow, now);
  flow->wants_syn = true;
  make_ready(*flow);
}

void Stack::abandon(const FlowKey& key, std::uint32_t attempt, TimeNs now) {
  const std::uint32_t index = table_.find(key);
  if (index == FlowTable::nobody || attempt == 0 || flows_[index].slow->attempt != attempt) return;
  flows_[index].elsewhere = true;  // nobody is told
  reset(flows_[index], FlowError::reset, now);
}

void Stack::adopted(const FlowKey& key, std::uint32_t attempt, bool declined, TimeNs now) {
  if (attempt == 0) {
    HalfOpen* const half = half_open_.find(key);
    if (half == nullptr || !half->handed) return;
    if (declined)
      half->handed = false;  // its next segment, or the answer to our SYN, asks again
    else
      half_open_.remove(key);
    return;
  }
  const std::uint32_t index = table_.find(key);
  if (index == FlowTable::nobody) return;
  Flow& flow = flows_[index];
  if (!flow.elsewhere || flow.slow->attempt != attempt) return;
  if (declined)
    reset(flow, FlowError::reset, now);
  else
    end(flow, FlowError::none);
}

Status Stack::take_time_wait(const wire::TcpHandedFlow& handed, TimeNs now) {
  OFP_TRY(check(handed));
  const FlowKey key = flow_key(handed.key);
  if (table_.find(key) != FlowTable::nobody) return {};  // it was begun anew
  Flow* const flow = new_flow(key, 0, 0, {}, now);
  if (flow == nullptr) return {};
  learn_next_hop(handed, now);
  flow->released = flow->fin_wanted = flow->fin_sent = true;
  take_handed(*flow, handed, now);
  enter(*flow, FlowState::time_wait, now);
  return {};
}

void Stack::resolve(Ipv4Address address, TimeNs now) {
  if (!address.is_unicast() || next_hop(address) != address) return;
  if (const MacAddress* mac = neighbours_.find(address, Neighbours::no_flow, Neighbours::other_stack, now))
    fast_->neighbour(address, *mac);
}

// ---- both

void Stack::ended_elsewhere(Flow& flow, FlowError error) {
  const bool opening = flow.state == FlowState::syn_sent || flow.state == FlowState::syn_received;
  if (fast_ != nullptr) {
    if (opening && !flow.elsewhere) fast_->failed(flow.key, flow.slow->attempt, error);
  } else if (slow_ != nullptr) {
    slow_->abandon(flow.key, flow.slow->attempt);
  }
  flow.elsewhere = false;
}

}  // namespace offpath::tcp
