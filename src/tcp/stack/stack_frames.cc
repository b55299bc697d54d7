// Frames before they are a flow's, and those that no flow sends.
#include "tcp/segment/ethernet.h"
#include "tcp/segment/frame_writer.h"
#include "tcp/stack/stack.h"

namespace offpath::tcp {
namespace {

constexpr std::size_t strays_max = 512;

}  // namespace

void Stack::receive(const ReceivedFrame& frame, TimeNs now) {
  if (frame.bytes.size() < ethernet_header_bytes) return drop(Drop::truncated);
  const EthernetHeader header = read_ethernet_header(frame.bytes.data());
  if (header.target != port_.mac && header.target != broadcast_mac) return drop(Drop::other_station);
  const Bytes body = frame.bytes.subspan(ethernet_header_bytes);
  frame_ = &frame;
  if (header.type == ethertype_arp) return slow_ == nullptr ? receive_arp(body, now) : slow_->frame(frame, true);
  // TCP is never said to all.
  if (header.type == ethertype_ipv4 && header.target == port_.mac)
    return receive_ipv4(body, frame.checksum_verified, header.source, now);
  drop(Drop::other_protocol);
}

void Stack::receive_arp(Bytes bytes, TimeNs now) {
  const auto message = read_arp(bytes);
  if (!message) return drop(Drop::bad_arp);
  neighbours_.on_message(*message, now);
  if (const MacAddress* mac = fast_ != nullptr ? neighbours_.known(message->sender) : nullptr)
    fast_->neighbour(message->sender, *mac);
  wake_waiting(now);
  send_neighbour_messages();
}

void Stack::overhear(const ArpMessage& message, TimeNs now) {
  neighbours_.overhear(message, now);
  wake_waiting(now);
}

void Stack::wake_waiting(TimeNs now) {
  while (const auto woken = neighbours_.next_woken()) {
    Flow& flow = flows_[woken->flow];
    // The flow that waited may be gone, and its number another's.
    if (flow.state == FlowState::closed || next_hop(flow.key.remote.address) != woken->address) continue;
    if (woken->found) {
      make_ready(flow);
    } else if (flow.state == FlowState::syn_sent) {
      end(flow, FlowError::unreachable);
    } else {
      // It may come back: the flow's own timers decide how long to wait for it.
      if (flow.retransmit_due == never) flow.retransmit_due = now + flow.rtt.timeout_ns(options_.rto, flow.retries);
      arm(flow);
    }
  }
}

void Stack::receive_ipv4(Bytes bytes, bool checksum_verified, const MacAddress& from, TimeNs now) {
  Ipv4Packet packet;
  if (const Drop reason = read_ipv4(bytes, packet); reason != Drop::none) return drop(reason);
  if (packet.target != options_.address) return drop(Drop::other_address);
  if (!packet.source.is_unicast() || packet.source == options_.address) return drop(Drop::bad_source);
  if (packet.protocol == protocol_icmp) {
    const auto icmp = read_icmp_unreachable(packet.payload, options_.address);
    return icmp ? receive_unreachable(*icmp, now) : drop(Drop::bad_icmp);
  }
  if (packet.protocol != protocol_tcp) return drop(Drop::other_protocol);
  Segment segment;
  if (const Drop reason = read_segment(packet, checksum_verified, segment); reason != Drop::none) return drop(reason);
  if (!is_returned_) ++counters_.segments_in;  // when it came, and was passed on
  const std::uint32_t index = table_.find(segment.key);
  if ((index == FlowTable::nobody || flows_[index].elsewhere) && pass_on(segment.key, index)) return;
  if (index != FlowTable::nobody) {
    receive_segment(flows_[index], segment, from, now);
  } else {
    receive_unknown(segment, from, now);
  }
}

// Only of a segment that is in flight, so that nobody who does not see the flow can tell it anything (RFC 5927).
void Stack::receive_unreachable(const IcmpUnreachable& icmp, TimeNs now) {
  const std::uint32_t index = table_.find(icmp.key);
  if ((index == FlowTable::nobody || flows_[index].elsewhere) && pass_on(icmp.key, index)) return;
  if (index == FlowTable::nobody) return drop(Drop::bad_icmp);
  Flow& flow = flows_[index];
  if (icmp.sequence < flow.una || icmp.sequence >= flow.next) return drop(Drop::bad_icmp);
  if (icmp.code == icmp_fragmentation_needed) {
    constexpr std::uint16_t next_smaller = 1280;  // of routers that do not say (RFC 1191, 7.1, in short)
    const std::uint16_t mtu = std::max(icmp.mtu != 0 ? icmp.mtu : next_smaller, options_.path_mtu_least);
    const auto mss =
        static_cast<std::uint16_t>(mtu - ipv4_header_bytes - tcp_header_bytes - (flow.timestamps ? 12u : 0u));
    if (mss >= flow.mss) return;
    if (flow.slow->mss_again_at == never) flow.slow->mss_before = flow.mss;
    flow.slow->mss_again_at = now + options_.path_mtu_ns;
    flow.mss = mss;
    arm(flow);
    // What was too large is sent again, in smaller pieces, and is no sign of congestion.
    if (flow.state < FlowState::established || flow.next == flow.una) return;
    scoreboard(flow).lose_all(flow.una, flow.next);
    flow.timing = false;
    flow.repairing = flow.resend_now = true;
    flow.recovery_point = flow.next;
    make_ready(flow);
    return;
  }
  // Of an established flow it may pass (RFC 1122, 4.2.3.9).
  if (flow.state != FlowState::syn_sent) return;
  const bool refused = icmp.code == icmp_port_unreachable || icmp.code == icmp_protocol_unreachable;
  end(flow, refused ? FlowError::refused : FlowError::unreachable);
}

FrameToSend* Stack::stray() {
  if (strays_.size() >= strays_max) {
    drop(Drop::no_room);
    return nullptr;
  }
  return &strays_.emplace_back();
}

void Stack::send_stray(const Segment& segment, const MacAddress& to) {
  FrameToSend* frame = stray();
  if (frame == nullptr) return;
  ++counters_.segments_out;
  write_segment_frame(segment, {}, own_mss(), port_.mac, to, port_.checksum, *frame);
}

void Stack::refuse(const Segment& segment, const MacAddress& from) {
  if (segment.has(flag::rst)) return;
  Segment reset;
  reset.key = segment.key;
  reset.flags = flag::rst;
  if (segment.has(flag::ack)) {
    reset.sequence = segment.acknowledgement;
  } else {
    reset.flags |= flag::ack;
    reset.acknowledgement = segment.end();
  }
  counters_.refused += segment.has(flag::syn) ? 1 : 0;
  ++counters_.resets_out;
  send_stray(reset, from);
}

Ipv4Address Stack::next_hop(Ipv4Address address) const noexcept {
  const std::uint32_t mask = options_.prefix_length == 0 ? 0 : ~0u << (32 - options_.prefix_length);
  return (address.value & mask) == (options_.address.value & mask) ? address : options_.gateway;
}

void Stack::send_neighbour_messages() {
  while (const auto send = neighbours_.next_message()) {
    if (slow_ != nullptr) {
      if (!send->message.reply) slow_->resolve(send->message.target);
      continue;
    }
    FrameToSend* frame = stray();
    if (frame != nullptr) write_arp_frame(send->message, port_.mac, send->to, *frame);
  }
}

}  // namespace offpath::tcp
