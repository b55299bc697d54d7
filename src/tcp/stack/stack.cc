#include "tcp/stack/stack.h"

#include "tcp/segment/arp.h"
#include "tcp/segment/ethernet.h"
#include "tcp/segment/multicast_listener.h"
#include "tcp/segment/neighbour_discovery.h"

namespace offpath::tcp {

Stack::Stack(const StackOptions& options, const PortCapabilities& port, const CongestionControl& congestion,
             Owner& owner, TimeNs now)
    : context_(options, port, congestion),
      frames_(context_),
      routes_(context_, other_, frames_, now),
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
  OFP_ASSERT(port.mtu >= 576 && (options.v6.address.is_unspecified() || port.mtu >= ipv6_mtu_least));
}

// ---- frames in

void Stack::receive(const ReceivedFrame& frame, TimeNs now) {
  if (frame.bytes.size() < ethernet_header_bytes) return context_.drop(Drop::truncated);
  const EthernetHeader header = read_ethernet_header(frame.bytes.data());
  const bool for_us_alone = header.target == context_.port.mac;
  if (!for_us_alone && header.target != broadcast_mac && !is_own_multicast(header.target))
    return context_.drop(Drop::other_station);
  const Bytes body = frame.bytes.subspan(ethernet_header_bytes);
  other_.frame = &frame;
  if (header.type == ethertype_arp) {
    if (other_.slow != nullptr) return other_.slow->frame(frame, true);
    const auto message = read_arp(body);
    return message ? receive_neighbour(*message, now) : context_.drop(Drop::bad_arp);
  }
  // Only neighbour discovery is sent to several nodes.
  if (for_us_alone || header.type == ethertype_ipv6) return receive_ip(header, body, frame, now);
  context_.drop(Drop::other_protocol);
}

bool Stack::is_own_multicast(const MacAddress& mac) const noexcept {
  const IpAddress& own = context_.options.v6.address;
  return !own.is_unspecified() && (mac == group_mac(own) || mac == multicast_mac(all_nodes));
}

void Stack::receive_neighbour(const NeighbourMessage& message, TimeNs now) {
  routes_.receive(message, now);
  flows_.wake_waiting(now);
  routes_.send_messages();
}

void Stack::settle_own(bool usable, TimeNs now) {
  routes_.settle_own(usable, now);
  flows_.wake_waiting(now);
}

void Stack::overhear(const NeighbourMessage& message, TimeNs now) {
  routes_.overhear(message, now);
  flows_.wake_waiting(now);
}

void Stack::receive_ip(const EthernetHeader& header, Bytes bytes, const ReceivedFrame& frame, TimeNs now) {
  IpPacket packet;
  if (const Drop reason = read_ip(header.type, bytes, packet); reason != Drop::none) return context_.drop(reason);
  const IpAddress& own = context_.options.own(packet.target.family()).address;
  if (packet.protocol == protocol_icmpv6 && !packet.target.is_v4() && !packet.payload.empty()) {
    const auto type = static_cast<std::uint8_t>(packet.payload[0]);
    if (is_discovery(type)) return receive_discovery(packet, header.source, now);
    if (type == mld_query) return receive_query(packet, now);
  }
  if (packet.target != own || own.is_unspecified() || header.target != context_.port.mac)
    return context_.drop(Drop::other_address);
  if (!is_unicast(packet.source) || packet.source == own) return context_.drop(Drop::bad_source);
  if (!routes_.may_use(own)) return context_.drop(Drop::other_address);
  if (packet.protocol == (own.is_v4() ? protocol_icmp : protocol_icmpv6)) {
    const auto icmp = read_icmp_unreachable(packet);
    return icmp ? receive_unreachable(*icmp, now) : context_.drop(Drop::bad_icmp);
  }
  if (packet.protocol != protocol_tcp) return context_.drop(Drop::other_protocol);
  Segment segment;
  if (const Drop reason = read_segment(packet, frame.checksum_verified, segment); reason != Drop::none)
    return context_.drop(reason);
  if (const auto bytes_each = std::uint32_t{frame.segment_bytes}; bytes_each != 0 && !segment.payload.empty())
    segment.packets = (static_cast<std::uint32_t>(segment.payload.size()) + bytes_each - 1) / bytes_each;
  if (!other_.is_returned) ++context_.counters.segments_in;  // when it came, and was passed on
  receive_segment(segment, header.source, now);
}

void Stack::receive_query(const IpPacket& packet, TimeNs now) {
  const auto within_ns = read_listener_query(packet, solicited_node(context_.options.v6.address));
  return within_ns ? routes_.take_query(*within_ns, now) : context_.drop(Drop::bad_icmp);
}

// Its messages are for this address, for its solicited-node group, or for all nodes.
void Stack::receive_discovery(const IpPacket& packet, const MacAddress& from, TimeNs now) {
  const IpAddress& own = context_.options.v6.address;
  if (own.is_unspecified() ||
      (packet.target != own && packet.target != solicited_node(own) && packet.target != all_nodes))
    return context_.drop(Drop::other_address);
  const auto message = read_neighbour_discovery(packet, from);
  if (!message) return context_.drop(Drop::bad_arp);
  if (from == context_.port.mac) return;  // its own, which a network has sent back
  if (other_.slow == nullptr || !routes_.may_use(own)) return receive_neighbour(*message, now);
  // The slow path answers, but both stacks need to know the router.
  if (message->router_s) routes_.overhear(*message, now);
  other_.slow->frame(*other_.frame, true);
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
  // Each flow at most once: a flow with more to send moves to the end of the list.
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
  if (read_neighbour_frame(frame.bytes)) return context_.drop(Drop::other_protocol);
  other_.is_returned = true;
  receive(frame, now);
  other_.is_returned = false;
}

Status Stack::learn_neighbour(const IpAddress& address, const MacAddress& mac, TimeNs now) {
  if (!is_unicast(address) || address == context_.options.own(address.family()).address || !is_station(mac))
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

void Stack::begin_connect(const FlowKey& key, std::uint32_t attempt, std::uint64_t receive_bytes, TimeNs now,
                          const FlowOptions& options) {
  hand_over_.begin_connect(key, attempt, receive_bytes, now, options);
}

void Stack::abandon(const FlowKey& key, std::uint32_t attempt, TimeNs now) { hand_over_.abandon(key, attempt, now); }

void Stack::adopted(const FlowKey& key, std::uint32_t attempt, bool declined, TimeNs now) {
  hand_over_.adopted(key, attempt, declined, now);
}

Status Stack::take_time_wait(const wire::TcpHandedFlow& handed, TimeNs now) {
  return hand_over_.take_time_wait(handed, now);
}

void Stack::resolve(const IpAddress& address, TimeNs now) { hand_over_.resolve(address, now); }

}  // namespace offpath::tcp
