// TCP segments: the header (RFC 9293, 3.1) with its options, and where the payload lies. Read sequence.h first.
#pragma once

#include "tcp/segment/address.h"
#include "tcp/segment/drop.h"
#include "tcp/segment/ipv4.h"
#include "tcp/segment/tcp_options.h"

namespace offpath::tcp {

inline constexpr std::size_t tcp_header_bytes = 20;  // without options
inline constexpr std::size_t tcp_header_bytes_max = tcp_header_bytes + tcp_options_bytes_max;
inline constexpr std::size_t tcp_checksum_offset = 16;

namespace flag {
inline constexpr std::uint8_t fin = 1, syn = 2, rst = 4, psh = 8, ack = 16, urg = 32, ece = 64, cwr = 128;
}

struct Segment {
  FlowKey key;  // as the receiver sees it: `remote` sent it; as the sender sees it, when it is written
  Sequence sequence, acknowledgement;
  std::uint8_t flags = 0;
  std::uint16_t window = 0;  // not scaled
  TcpOptions options{};
  Ecn ecn = Ecn::not_capable;
  Bytes payload{};

  [[nodiscard]] bool has(std::uint8_t flags_wanted) const noexcept { return (flags & flags_wanted) == flags_wanted; }
  // SEG.LEN: SYN and FIN take a number each.
  [[nodiscard]] std::uint32_t length() const noexcept {
    return static_cast<std::uint32_t>(payload.size()) + (flags & flag::syn ? 1 : 0) + (flags & flag::fin ? 1 : 0);
  }
  [[nodiscard]] Sequence end() const noexcept { return sequence + length(); }
};

// Of a datagram. `checksum_verified`: whoever gave the frame says that it need not be looked at.
[[nodiscard]] Drop read_segment(const Ipv4Packet& packet, bool checksum_verified, Segment& segment) noexcept;

// The header without its checksum; returns its bytes.
[[nodiscard]] std::size_t write_segment_header(const Segment& segment,
                                               std::span<std::byte, tcp_header_bytes_max> to) noexcept;

}  // namespace offpath::tcp
