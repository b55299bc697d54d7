#include "tcp/stack/stack.h"

#include "tcp/segment/ethernet.h"

namespace offpath::tcp {

Stack::Stack(const StackOptions& options, const PortCapabilities& port, const CongestionControl& congestion,
             Owner& owner, TimeNs now)
    : context_(options, port, congestion),
      frames_(context_),
      routes_(context_, other_, frames_),
      flows_(context_, other_, frames_, routes_, now),
      handed_(context_, other_, routes_),
      ecn_(context_),
      recovery_(context_, flows_),
      active_(context_, other_, flows_, listeners_, owner),
      passive_(context_, other_, frames_, routes_, flows_, listeners_, handed_, owner, now),
      arrival_(context_, other_, frames_, flows_, listeners_, handed_, ecn_, recovery_, owner),
      transmission_(context_, other_, frames_, routes_, flows_, handed_, owner),
      timers_(context_, flows_, recovery_),
      hand_over_(context_, other_, frames_, routes_, flows_, listeners_, handed_, passive_) {
  OFP_ASSERT(port.mtu >= 576);
}

// ---- frames in

void Stack::receive(const ReceivedFrame& frame, TimeNs now) {
  if (frame.bytes.size() < ethernet_header_bytes) return context_.drop(Drop::truncated);
  const EthernetHeader header = read_ethernet_header(frame.bytes.data());
  if (header.target != context_.port.mac && header.target != broadcast_mac) return context_.drop(Drop::other_station);
  const Bytes body = frame.bytes.subspan(ethernet_header_bytes);
  other_.frame = &frame;
  if (header.type == ethertype_arp)
    return other_.slow == nullptr ? receive_arp(body, now) : other_.slow->frame(frame, true);
  // TCP is never said to all.
  if (header.type == ethertype_ipv4 && header.target == context_.port.mac)
    return receive_ipv4(body, frame.checksum_verified, header.source, now);
  context_.drop(Drop::other_protocol);
}

void Stack::receive_arp(Bytes bytes, TimeNs now) {
  const auto message = read_arp(bytes);
  if (!message) return context_.drop(Drop::bad_arp);
  routes_.receive(*message, now);
  flows_.wake_waiting(now);
  routes_.send_messages();
}

void Stack::overhear(const ArpMessage& message, TimeNs now) {
  routes_.overhear(message, now);
  flows_.wake_waiting(now);
}

void Stack::receive_ipv4(Bytes bytes, bool checksum_verified, const MacAddress& from, TimeNs now) {
  Ipv4Packet packet;
  if (const Drop reason = read_ipv4(bytes, packet); reason != Drop::none) return context_.drop(reason);
  if (packet.target != context_.options.address) return context_.drop(Drop::other_address);
  if (!packet.source.is_unicast() || packet.source == context_.options.address) return context_.drop(Drop::bad_source);
  if (packet.protocol == protocol_icmp) {
    const auto icmp = read_icmp_unreachable(packet.payload, context_.options.address);
    return icmp ? receive_unreachable(*icmp, now) : context_.drop(Drop::bad_icmp);
  }
  if (packet.protocol != protocol_tcp) return context_.drop(Drop::other_protocol);
  Segment segment;
  if (const Drop reason = read_segment(packet, checksum_verified, segment); reason != Drop::none)
    return context_.drop(reason);
  if (!other_.is_returned) ++context_.counters.segments_in;  // when it came, and was passed on
  receive_segment(segment, from, now);
}

void Stack::receive_segment(const Segment& segment, const MacAddress& from, TimeNs now) {
  const std::uint32_t index = flows_.index_of(segment.key);
  if ((index == FlowTable::nobody || flows_.at(index).elsewhere) && hand_over_.pass_on(segment.key, index)) return;
  if (index != FlowTable::nobody && arrival_.receive(flows_.at(index), segment, from, now)) return;
  // A new flow first receives its own segment, one without SYN, which starts no further flow.
  if (Flow* const flow = passive_.receive(segment, from, now))
    static_cast<void>(arrival_.receive(*flow, segment, from, now));
}

void Stack::receive_unreachable(const IcmpUnreachable& icmp, TimeNs now) {
  const std::uint32_t index = flows_.index_of(icmp.key);
  if ((index == FlowTable::nobody || flows_.at(index).elsewhere) && hand_over_.pass_on(icmp.key, index)) return;
  if (index == FlowTable::nobody) return context_.drop(Drop::bad_icmp);
  arrival_.receive_unreachable(flows_.at(index), icmp, now);
}

// ---- frames out, and time

TimeNs Stack::next_due() const noexcept {
  return std::min({flows_.next_due(), passive_.next_due(), routes_.next_due()});
}

void Stack::on_time(TimeNs now) {
  while (Flow* const flow = flows_.next_due_flow(now)) timers_.due(*flow, now);
  passive_.on_time(now);
  routes_.on_time(now);
  flows_.wake_waiting(now);
  routes_.send_messages();
}

std::size_t Stack::transmit(std::span<FrameToSend> frames, TimeNs now) {
  frames_.begin(frames);
  frames_.move_strays();
  // Each flow at most once: one that has more is at the end of the list then.
  for (std::size_t left = flows_.ready(); left > 0 && frames_.has_room(); --left)
    if (Flow* const flow = flows_.take_ready()) transmission_.serve(*flow, now);
  routes_.send_messages();
  frames_.move_strays();
  return frames_.finish();
}

// ---- work shared with another stack

void Stack::lean_on(SlowPath* slow) { hand_over_.lean_on(slow); }

Result<bool> Stack::adopt(const wire::TcpHandedFlow& handed, const ReceivedFrame* frame, TimeNs now) {
  const auto adopted = hand_over_.adopt(handed, now);
  if (adopted && *adopted && frame != nullptr) receive_returned(*frame, now);
  return adopted;
}

bool Stack::connect_failed(const FlowKey& key, std::uint32_t attempt, FlowError error) {
  return hand_over_.connect_failed(key, attempt, error);
}

void Stack::receive_returned(const ReceivedFrame& frame, TimeNs now) {
  if (frame.bytes.size() >= ethernet_header_bytes && read_ethernet_header(frame.bytes.data()).type == ethertype_arp)
    return context_.drop(Drop::other_protocol);
  other_.is_returned = true;
  receive(frame, now);
  other_.is_returned = false;
}

Status Stack::learn_neighbour(Ipv4Address address, const MacAddress& mac, TimeNs now) {
  if (!address.is_unicast() || address == context_.options.address || !is_station(mac))
    return fail(Error::protocol, "{} cannot be a neighbour with a hardware address that begins with {:#x}",
                text_of(address), mac[0]);
  routes_.learn(address, mac, false, now);
  flows_.wake_waiting(now);
  return {};
}

Status Stack::send_frame(const FrameToSend& frame) { return hand_over_.send_frame(frame); }

void Stack::work_for(FastPath& fast, TimeNs cookies_until) noexcept {
  other_.fast = &fast;
  passive_.accept_cookies(cookies_until);
}

void Stack::begin_connect(const FlowKey& key, std::uint32_t attempt, std::uint64_t receive_bytes, TimeNs now) {
  hand_over_.begin_connect(key, attempt, receive_bytes, now);
}

void Stack::abandon(const FlowKey& key, std::uint32_t attempt, TimeNs now) { hand_over_.abandon(key, attempt, now); }

void Stack::adopted(const FlowKey& key, std::uint32_t attempt, bool declined, TimeNs now) {
  hand_over_.adopted(key, attempt, declined, now);
}

Status Stack::take_time_wait(const wire::TcpHandedFlow& handed, TimeNs now) {
  return hand_over_.take_time_wait(handed, now);
}

void Stack::resolve(Ipv4Address address, TimeNs now) { hand_over_.resolve(address, now); }

}  // namespace offpath::tcp
