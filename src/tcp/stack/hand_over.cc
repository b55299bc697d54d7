#include "tcp/stack/hand_over.h"
#include "tcp/segment/ethernet.h"
#include "tcp/segment/neighbour_message.h"

namespace offpath::tcp {

bool HandOver::pass_on(const FlowKey& key, std::uint32_t index) {
  const bool elsewhere = index != FlowTable::nobody && flows_.at(index).elsewhere;
  if (other_.fast != nullptr && elsewhere) {
    other_.fast->returned(*other_.frame);
    return true;
  }
  // This stack alone continues the connections that it has begun.
  if (other_.slow == nullptr || (!elsewhere && passive_.is_half_open(key))) return false;
  if (!other_.is_returned)
    other_.slow->frame(*other_.frame, false);  // otherwise the flow was declined, which its peer will notice
  return true;
}

void HandOver::lean_on(SlowPath* slow) {
  other_.slow = slow;
  if (other_.slow != nullptr) {
    for (const auto& [place, listener] : listeners_.all())
      other_.slow->listen(listener.family, listener.port, listener.receive_bytes, listener.options);
    return;
  }
  for (Flow& flow : flows_.all()) {
    if (!flow.elsewhere || flow.state != FlowState::syn_sent) continue;
    flow.elsewhere = false;
    flow.wants_syn = true;
    flows_.make_ready(flow);
  }
}

Result<bool> HandOver::adopt(const wire::TcpHandedFlow& handed, TimeNs now) {
  OFP_TRY(handed_.check(handed));
  const FlowKey key = flow_key(handed.key);
  const std::uint32_t attempt = handed.key.attempt, index = flows_.index_of(key);
  if (handed_.learn_next_hop(handed, now)) flows_.wake_waiting(now);
  if (index != FlowTable::nobody) {
    Flow& flow = flows_.at(index);
    if (attempt != (flow.elsewhere ? flow.slow->attempt : 0)) return false;
    if (flow.elsewhere) {
      flow.elsewhere = false;
      handed_.read(flow, handed, now);
      flow.wants_ack = true;
      ++context_.counters.connected;
      context_.control(flow).begin(flow.congestion, flow.mss, now);
      flows_.established(flow, now);
    }  // otherwise a cookie came back twice
  } else {
    const Listener* const listener = listeners_.find(key);
    if (attempt != 0 || listener == nullptr) return false;
    Flow* const flow = passive_.admit(key, *listener, now);
    if (flow == nullptr) return false;
    flow->accepted = true;
    flow->slow->begun = context_.count_begun();
    handed_.read(*flow, handed, now);
    ++context_.counters.accepted;
    context_.control(*flow).begin(flow->congestion, flow->mss, now);
    flows_.established(*flow, now);
  }
  return true;
}

bool HandOver::connect_failed(const FlowKey& key, std::uint32_t attempt, FlowError error) {
  const std::uint32_t index = flows_.index_of(key);
  if (index == FlowTable::nobody) return false;
  Flow& flow = flows_.at(index);
  if (!flow.elsewhere || flow.slow->attempt != attempt) return false;
  flow.elsewhere = false;
  flows_.end(flow, error);
  return true;
}

Status HandOver::send_frame(const FrameToSend& frame) {
  const Bytes bytes(frame.header.data(), frame.header_bytes);
  const auto bad = [&](std::string_view why) {
    return fail(Error::protocol, "a frame of {} bytes to send {}", bytes.size(), why);
  };
  if (bytes.size() < ethernet_header_bytes) return bad("is shorter than an Ethernet header");
  const EthernetHeader header = read_ethernet_header(bytes.data());
  const Bytes body = bytes.subspan(ethernet_header_bytes);
  if (header.source != context_.port.mac) return bad("comes from another hardware address");
  const bool of_neighbour = read_neighbour_frame(bytes).has_value();
  if (of_neighbour) {
    if (frame.tcp_offset != 0 || frame.checksum_partial) return bad("is a neighbour's message with a TCP header");
  } else {
    IpPacket packet;
    if (read_ip(header.type, body, packet) != Drop::none || packet.protocol != protocol_tcp)
      return bad("is neither a valid TCP segment nor a neighbour's message");
    const IpFamily family = packet.target.family();
    if (packet.source.is_unspecified() || packet.source != context_.options.own(family).address)
      return bad("comes from another address");
    const auto payload_at = static_cast<std::size_t>(packet.payload.data() - bytes.data());
    if (frame.tcp_offset != payload_at || payload_at != ethernet_header_bytes + ip_header_bytes(family) ||
        packet.payload.size() < tcp_header_bytes || (frame.checksum_partial && !context_.port.checksum))
      return bad("has its TCP header at a wrong offset");
  }
  if (FrameToSend* const to = frames_.stray()) {
    *to = frame;
    context_.counters.segments_out += of_neighbour ? 0 : 1;
  }
  return {};
}

void HandOver::begin_connect(const FlowKey& key, std::uint32_t attempt, std::uint64_t receive_bytes, TimeNs now,
                             const FlowOptions& options) {
  const std::uint32_t index = flows_.index_of(key);
  if (index != FlowTable::nobody) {
    Flow& old = flows_.at(index);
    // The peer distinguishes the new connection from the old one by timestamps (RFC 6191, 2), which continue.
    if (old.state == FlowState::time_wait && !old.timestamps)
      return other_.fast->failed(key, attempt, FlowError::in_use);
    old.elsewhere = true;
    flows_.end(old, FlowError::none);
  }
  const bool possible = key.local.address == context_.options.own(key.family()).address && key.local.port != 0 &&
                        is_unicast(key.remote.address) && key.remote.port != 0 &&
                        !context_.next_hop(key.remote.address).is_unspecified();
  Flow* const flow = possible ? flows_.new_flow(key, 0, receive_bytes, options, now) : nullptr;
  if (flow == nullptr) return other_.fast->failed(key, attempt, FlowError::unreachable);
  flow->released = true;  // its end has no receiver here
  flow->slow->attempt = attempt;
  flows_.begin_opening(*flow, now);
  flow->wants_syn = true;
  flows_.make_ready(*flow);
}

void HandOver::abandon(const FlowKey& key, std::uint32_t attempt, TimeNs now) {
  const std::uint32_t index = flows_.index_of(key);
  if (index == FlowTable::nobody || attempt == 0 || flows_.at(index).slow->attempt != attempt) return;
  flows_.at(index).elsewhere = true;  // without an event
  flows_.reset(flows_.at(index), FlowError::reset, now);
}

void HandOver::adopted(const FlowKey& key, std::uint32_t attempt, bool declined, TimeNs now) {
  if (attempt == 0) {
    passive_.handed_over(key, declined);
    return;
  }
  const std::uint32_t index = flows_.index_of(key);
  if (index == FlowTable::nobody) return;
  Flow& flow = flows_.at(index);
  if (!flow.elsewhere || flow.slow->attempt != attempt) return;
  if (declined)
    flows_.reset(flow, FlowError::reset, now);
  else
    flows_.end(flow, FlowError::none);
}

Status HandOver::take_time_wait(const wire::TcpHandedFlow& handed, TimeNs now) {
  OFP_TRY(handed_.check(handed));
  const FlowKey key = flow_key(handed.key);
  if (flows_.index_of(key) != FlowTable::nobody) return {};  // it was begun again
  FlowOptions options;
  options.traffic_class4 = options.traffic_class6 = without_ecn(handed.traffic_class);
  Flow* const flow = flows_.new_flow(key, 0, 0, options, now);
  if (flow == nullptr) return {};
  if (handed_.learn_next_hop(handed, now)) flows_.wake_waiting(now);
  flow->released = flow->fin_wanted = flow->fin_sent = true;
  handed_.read(*flow, handed, now);
  flows_.enter(*flow, FlowState::time_wait, now);
  return {};
}

void HandOver::resolve(const IpAddress& address, TimeNs now) {
  if (!is_unicast(address) || context_.next_hop(address) != address) return;
  if (const MacAddress* mac = routes_.find_for_other(address, now)) other_.fast->neighbour(address, *mac);
}

}  // namespace offpath::tcp
