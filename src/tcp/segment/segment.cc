#include "tcp/segment/segment.h"

#include "tcp/segment/checksum.h"

namespace offpath::tcp {
namespace {

constexpr std::uint16_t flags_mask = 0x1ff;  // the three bits between these and the header's size are reserved

}  // namespace

Drop read_segment(const IpPacket& packet, bool checksum_verified, Segment& segment) noexcept {
  const Bytes bytes = packet.payload;
  if (bytes.size() < tcp_header_bytes) return Drop::truncated;
  const std::byte* at = bytes.data();
  const std::size_t header = 4 * (static_cast<std::size_t>(at[12]) >> 4);
  if (header < tcp_header_bytes) return Drop::bad_tcp_header;
  if (header > bytes.size()) return Drop::truncated;
  if (!checksum_verified) {
    Checksum checksum;
    checksum.add_pseudo_header(packet.source, packet.target, protocol_tcp, static_cast<std::uint32_t>(bytes.size()));
    checksum.add(bytes);
    if (checksum.finish() != 0) return Drop::bad_tcp_checksum;
  }
  segment.key = {{packet.target, load_be16(at + 2)}, {packet.source, load_be16(at)}};
  if (segment.key.local.port == 0 || segment.key.remote.port == 0) return Drop::bad_tcp_header;
  segment.sequence = Sequence(load_be32(at + 4));
  segment.acknowledgement = Sequence(load_be32(at + 8));
  segment.flags = load_be16(at + 12) & flags_mask;
  segment.window = load_be16(at + 14);
  segment.options = read_tcp_options(bytes.subspan(tcp_header_bytes, header - tcp_header_bytes));
  segment.ecn = packet.ecn;
  segment.traffic_class = packet.traffic_class;
  segment.payload = bytes.subspan(header);
  return Drop::none;
}

std::size_t write_segment_header(const Segment& segment, std::span<std::byte, tcp_header_bytes_max> to) noexcept {
  const std::size_t bytes = tcp_header_bytes + write_tcp_options(segment.options, to.subspan<tcp_header_bytes>());
  std::byte* at = to.data();
  store_be16(at, segment.key.local.port);
  store_be16(at + 2, segment.key.remote.port);
  store_be32(at + 4, segment.sequence.value());
  store_be32(at + 8, segment.has(flag::ack) ? segment.acknowledgement.value() : 0);
  store_be16(at + 12, static_cast<std::uint16_t>(bytes / 4 << 12 | segment.flags));
  store_be16(at + 14, segment.window);
  store_be32(at + 16, 0);  // checksum, urgent pointer
  return bytes;
}

}  // namespace offpath::tcp
