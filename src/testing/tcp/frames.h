// Frames as the stack has its ports send them. For tests.
#pragma once

#include "tcp/segment/ethernet.h"
#include "tcp/segment/frame.h"
#include "tcp/segment/ipv4.h"
#include "tcp/segment/segment.h"

namespace offpath::tcp {

// With TCP's payload in two pieces; the port completes the checksum.
inline FrameToSend segment_frame(const Segment& segment, const MacAddress& to, const MacAddress& from, Bytes first,
                                 Bytes second) {
  FrameToSend frame{};
  write_ethernet_header({to, from, ethertype_ipv4}, frame.header.data());
  const std::size_t ip = ethernet_header_bytes, tcp = ip + ipv4_header_bytes;
  const std::size_t header = write_segment_header(
      segment, std::span<std::byte, tcp_header_bytes_max>(&frame.header[tcp], tcp_header_bytes_max));
  write_ipv4_header({segment.key.local.address, segment.key.remote.address, protocol_tcp},
                    header + first.size() + second.size(),
                    std::span<std::byte, ipv4_header_bytes>(&frame.header[ip], ipv4_header_bytes));
  frame.header_bytes = static_cast<std::uint8_t>(tcp + header);
  frame.tcp_offset = static_cast<std::uint8_t>(tcp);
  frame.checksum_partial = true;
  frame.payload = {first, second};
  return frame;
}

}  // namespace offpath::tcp
