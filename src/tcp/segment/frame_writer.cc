#include "tcp/segment/frame_writer.h"

#include "tcp/segment/checksum.h"
#include "tcp/segment/ethernet.h"
#include "wire/areas/flow_steering.h"

namespace offpath::tcp {

namespace {

// The same for all segments of a flow, so that routers may keep their order (RFC 6437).
std::uint32_t flow_label(const FlowKey& key) noexcept {
  constexpr std::uint32_t label_mask = 0xfffff;
  return wire::flow_hash(key.local.address, key.local.port, key.remote.address, key.remote.port) & label_mask;
}

}  // namespace

void write_segment_frame(const Segment& segment, const std::array<Bytes, 2>& payload, std::uint16_t segment_bytes,
                         const MacAddress& from, const MacAddress& to, bool checksum_offload,
                         FrameToSend& frame) noexcept {
  const FlowKey& key = segment.key;
  const IpFamily family = key.family();
  const std::size_t tcp = ethernet_header_bytes + ip_header_bytes(family);
  std::byte* header = frame.header.data();
  frame.payload = payload;
  const std::size_t payload_bytes = frame.payload_bytes();
  write_ethernet_header({to, from, family == IpFamily::v4 ? ethertype_ipv4 : ethertype_ipv6}, header);
  const std::size_t tcp_bytes =
      write_segment_header(segment, std::span<std::byte, tcp_header_bytes_max>(header + tcp, tcp_header_bytes_max));
  const std::size_t bytes = tcp_bytes + payload_bytes;
  IpPacket packet{.source = key.local.address, .target = key.remote.address, .protocol = protocol_tcp};
  packet.ecn = segment.ecn;
  packet.traffic_class = segment.traffic_class;
  if (family == IpFamily::v6) packet.flow_label = flow_label(key);
  write_ip_header(packet, bytes, header + ethernet_header_bytes);
  frame.header_bytes = static_cast<std::uint8_t>(tcp + tcp_bytes);
  frame.tcp_offset = static_cast<std::uint8_t>(tcp);
  frame.checksum_partial = checksum_offload;
  frame.segment_bytes = payload_bytes > segment_bytes ? segment_bytes : 0;
  Checksum checksum;
  checksum.add_pseudo_header(packet.source, packet.target, protocol_tcp, static_cast<std::uint32_t>(bytes));
  if (checksum_offload) {
    store_be16(header + tcp + tcp_checksum_offset, checksum.sum());
    return;
  }
  checksum.add(Bytes(header + tcp, tcp_bytes));
  for (const Bytes& part : payload) checksum.add(part);
  store_be16(header + tcp + tcp_checksum_offset, checksum.finish());
}

}  // namespace offpath::tcp
