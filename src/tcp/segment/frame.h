// Frames on their way between the stack and a port.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"

namespace offpath::tcp {

// Valid until the port is asked to receive again.
struct ReceivedFrame {
  Bytes bytes{};
  bool checksum_verified = false;   // by the card, or by the kernel for a frame of this machine
  std::uint16_t segment_bytes = 0;  // payload of each packet that the frame was merged from; 0: it is one packet
};

// Headers made by the stack, and payload in its owner's memory: two pieces if it wraps around the end of a ring.
//
// With `checksum_partial`, TCP's checksum field holds the sum of the pseudo header and the port completes it. With
// `segment_bytes`, the port cuts the payload into segments of that size, each with headers of its own.
struct FrameToSend {
  static constexpr std::size_t header_bytes_max = 114;  // Ethernet, IPv6, TCP with all options

  std::array<std::byte, header_bytes_max> header;
  std::uint8_t header_bytes = 0;
  std::uint8_t tcp_offset = 0;  // offset of TCP's header; 0: the frame has none
  bool checksum_partial = false;
  std::uint16_t segment_bytes = 0;
  std::array<Bytes, 2> payload{};

  [[nodiscard]] std::size_t payload_bytes() const noexcept { return payload[0].size() + payload[1].size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return header_bytes + payload_bytes(); }
};

}  // namespace offpath::tcp
