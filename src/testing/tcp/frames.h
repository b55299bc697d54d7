// Frames as the stack has its ports send them. For tests.
#pragma once

#include "tcp/segment/ethernet.h"
#include "tcp/segment/frame.h"
#include "tcp/segment/ip_packet.h"
#include "tcp/segment/segment.h"

namespace offpath::tcp {

// With TCP's payload in two pieces; the port completes the checksum.
inline FrameToSend segment_frame(const Segment& segment, const MacAddress& to, const MacAddress& from, Bytes first,
                                 Bytes second) {
  FrameToSend frame{};
  const IpFamily family = segment.key.family();
  const std::size_t ip = ethernet_header_bytes, tcp = ip + ip_header_bytes(family);
  write_ethernet_header({to, from, family == IpFamily::v4 ? ethertype_ipv4 : ethertype_ipv6}, frame.header.data());
  const std::size_t header = write_segment_header(
      segment, std::span<std::byte, tcp_header_bytes_max>(&frame.header[tcp], tcp_header_bytes_max));
  write_ip_header({.source = segment.key.local.address, .target = segment.key.remote.address, .protocol = protocol_tcp},
                  header + first.size() + second.size(), &frame.header[ip]);
  frame.header_bytes = static_cast<std::uint8_t>(tcp + header);
  frame.tcp_offset = static_cast<std::uint8_t>(tcp);
  frame.checksum_partial = true;
  frame.payload = {first, second};
  return frame;
}

}  // namespace offpath::tcp
