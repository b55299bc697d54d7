// Any bytes as a datagram of either family, as ARP, neighbour discovery and ICMP: dropped under a reason, or read
// within their bounds. A segment's options, once read, survive writing and reading again; so does a message about
// neighbours.
#include <array>
#include <vector>

#include "base/status.h"
#include "tcp/segment/arp.h"
#include "tcp/segment/checksum.h"
#include "tcp/segment/ethernet.h"
#include "tcp/segment/icmp.h"
#include "tcp/segment/neighbour_discovery.h"
#include "tcp/segment/segment.h"

using namespace offpath;
using namespace offpath::tcp;

namespace {

bool within(Bytes inner, Bytes outer) {
  return inner.empty() || (inner.data() >= outer.data() && inner.data() + inner.size() <= outer.data() + outer.size());
}

void check_segment(const IpPacket& packet) {
  Segment segment;
  if (read_segment(packet, true, segment) != Drop::none) return;
  OFP_ASSERT(within(segment.payload, packet.payload));
  OFP_ASSERT(segment.options.sack_count <= sack_blocks_max &&
             segment.options.window_scale.value_or(0) <= window_scale_max);
  std::array<std::byte, tcp_options_bytes_max> written{};
  TcpOptions options = segment.options;
  // Options that arrived unaligned may need more room when written: SACK blocks are then left out.
  const std::size_t bytes = write_tcp_options(options, written);
  OFP_ASSERT(bytes <= written.size() && bytes % 4 == 0);
  const TcpOptions again = read_tcp_options(Bytes(written).first(bytes));
  OFP_ASSERT(again.sack_count <= options.sack_count);
  options.sack_count = again.sack_count;
  for (std::size_t i = again.sack_count; i < sack_blocks_max; ++i) options.sack[i] = {};
  OFP_ASSERT(again == options);
}

// As the ICMPv6 message of a datagram, with a right checksum.
void check_neighbour(Bytes bytes) {
  std::vector<std::byte> body(bytes.begin(), bytes.end());
  if (body.size() < 4) return;
  IpPacket packet{.source = ipv4(1), .target = all_nodes, .protocol = protocol_icmpv6, .payload = body};
  packet.source.bytes[0] = 0xfe;
  packet.source.bytes[1] = 0x80;
  packet.hop_limit = discovery_hop_limit;
  store_be16(&body[2], 0);
  Checksum checksum;
  checksum.add_pseudo_header(packet.source, packet.target, protocol_icmpv6, static_cast<std::uint32_t>(body.size()));
  checksum.add(body);
  store_be16(&body[2], checksum.finish());
  const auto message = read_neighbour_discovery(packet, {2, 0, 0, 0, 0, 1});
  if (!message || message->router_s) return;
  OFP_ASSERT(is_unicast(message->reply ? message->sender : message->target));
  if (message->sender_mac == MacAddress{} || (!message->reply && message->sender.is_unspecified())) return;
  FrameToSend frame;
  write_neighbour_frame(*message, message->sender_mac, group_mac(message->target), frame);
  const auto again = read_neighbour_frame(Bytes(frame.header).first(frame.header_bytes));
  OFP_ASSERT(again && again->reply == message->reply && again->sender == message->sender &&
             again->sender_mac == message->sender_mac);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::byte> copy(reinterpret_cast<const std::byte*>(data),
                                    reinterpret_cast<const std::byte*>(data) + size);
  const Bytes bytes(copy);
  static_cast<void>(read_arp(bytes));
  check_neighbour(bytes);
  IpPacket packet;
  for (const std::uint16_t type : {ethertype_ipv4, ethertype_ipv6})
    if (read_ip(type, bytes, packet) == Drop::none) OFP_ASSERT(within(packet.payload, bytes));
  // Also behind the header's checksum.
  for (const IpAddress& own : {ipv4(0x0a000001), all_nodes}) {
    const bool is_v4 = own.is_v4();
    IpPacket made{.source = own, .target = own, .protocol = is_v4 ? protocol_icmp : protocol_icmpv6, .payload = bytes};
    if (const auto icmp = read_icmp_unreachable(made)) OFP_ASSERT(icmp->key.family() == own.family());
    made.protocol = protocol_tcp;
    check_segment(made);
  }
  return 0;
}
