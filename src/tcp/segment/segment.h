// TCP segments: the header (RFC 9293, 3.1) with its options, and the payload. Read this first in
// src/tcp/segment, then sequence.h (its numbers), tcp_options.h, and the headers around it: ethernet.h, ip_packet.h,
// frame.h; frame_writer.h builds what is sent.
#pragma once

#include "tcp/segment/address.h"
#include "tcp/segment/drop.h"
#include "tcp/segment/ip_packet.h"
#include "tcp/segment/tcp_options.h"

namespace offpath::tcp {

inline constexpr std::size_t tcp_header_bytes = 20;  // without options
inline constexpr std::size_t tcp_header_bytes_max = tcp_header_bytes + tcp_options_bytes_max;
inline constexpr std::size_t tcp_checksum_offset = 16;

// Of a peer that names none in its SYN (RFC 9293, 3.7.1).
[[nodiscard]] constexpr std::uint16_t default_mss(IpFamily family) noexcept {
  return family == IpFamily::v4 ? 536 : 1220;
}

namespace flag {
inline constexpr std::uint16_t fin = 1, syn = 2, rst = 4, psh = 8, ack = 16, urg = 32, ece = 64, cwr = 128,
                               ae = 256;  // RFC 9768
}

struct Segment {
  FlowKey key;  // as this end sees it: `remote` has sent a received segment
  Sequence sequence, acknowledgement;
  std::uint16_t flags = 0;
  std::uint16_t window = 0;  // not scaled
  TcpOptions options{};
  Ecn ecn = Ecn::not_capable;
  std::uint8_t traffic_class = 0;  // with zeros for the two bits of ECN
  std::uint32_t packets = 1;       // it was merged from so many
  Bytes payload{};

  [[nodiscard]] bool has(std::uint16_t flags_wanted) const noexcept { return (flags & flags_wanted) == flags_wanted; }
  // SEG.LEN: SYN and FIN count as one each.
  [[nodiscard]] std::uint32_t length() const noexcept {
    return static_cast<std::uint32_t>(payload.size()) + (flags & flag::syn ? 1 : 0) + (flags & flag::fin ? 1 : 0);
  }
  [[nodiscard]] Sequence end() const noexcept { return sequence + length(); }
};

// Parses a datagram's segment. `checksum_verified`: the port has verified the checksum, so it is not computed.
[[nodiscard]] Drop read_segment(const IpPacket& packet, bool checksum_verified, Segment& segment) noexcept;

// Writes the header without its checksum; returns its size in bytes.
[[nodiscard]] std::size_t write_segment_header(const Segment& segment,
                                               std::span<std::byte, tcp_header_bytes_max> to) noexcept;

}  // namespace offpath::tcp
