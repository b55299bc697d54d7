#include "tcp/segment/frame_writer.h"

#include "tcp/segment/checksum.h"
#include "tcp/segment/ethernet.h"

namespace offpath::tcp {

void write_segment_frame(const Segment& segment, const std::array<Bytes, 2>& payload, std::uint16_t segment_bytes,
                         const MacAddress& from, const MacAddress& to, bool checksum_offload,
                         FrameToSend& frame) noexcept {
  constexpr std::size_t tcp = ethernet_header_bytes + ipv4_header_bytes;
  std::byte* header = frame.header.data();
  frame.payload = payload;
  const std::size_t payload_bytes = frame.payload_bytes();
  write_ethernet_header({to, from, ethertype_ipv4}, header);
  const std::size_t tcp_bytes =
      write_segment_header(segment, std::span<std::byte, tcp_header_bytes_max>(header + tcp, tcp_header_bytes_max));
  const std::size_t bytes = tcp_bytes + payload_bytes;
  const Ipv4Address source = segment.key.local.address, target = segment.key.remote.address;
  write_ipv4_header({source, target, protocol_tcp, segment.ecn}, bytes,
                    std::span<std::byte, ipv4_header_bytes>(header + ethernet_header_bytes, ipv4_header_bytes));
  frame.header_bytes = static_cast<std::uint8_t>(tcp + tcp_bytes);
  frame.tcp_offset = tcp;
  frame.checksum_partial = checksum_offload;
  frame.segment_bytes = payload_bytes > segment_bytes ? segment_bytes : 0;
  Checksum checksum;
  checksum.add_pseudo_header(source, target, protocol_tcp, static_cast<std::uint32_t>(bytes));
  if (checksum_offload) {
    store_be16(header + tcp + tcp_checksum_offset, checksum.sum());
    return;
  }
  checksum.add(Bytes(header + tcp, tcp_bytes));
  for (const Bytes& part : payload) checksum.add(part);
  store_be16(header + tcp + tcp_checksum_offset, checksum.finish());
}

void write_arp_frame(const ArpMessage& message, const MacAddress& from, const MacAddress& to,
                     FrameToSend& frame) noexcept {
  write_ethernet_header({to, from, ethertype_arp}, frame.header.data());
  write_arp(message, std::span<std::byte, arp_bytes>(frame.header.data() + ethernet_header_bytes, arp_bytes));
  frame.header_bytes = ethernet_header_bytes + arp_bytes;
  frame.tcp_offset = 0;
  frame.checksum_partial = false;
  frame.segment_bytes = 0;
  frame.payload = {};
}

}  // namespace offpath::tcp
