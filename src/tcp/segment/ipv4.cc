#include "tcp/segment/ipv4.h"

#include "tcp/segment/checksum.h"

namespace offpath::tcp {

Drop read_ipv4(Bytes bytes, IpPacket& packet) noexcept {
  if (bytes.size() < ipv4_header_bytes) return Drop::truncated;
  const std::byte* at = bytes.data();
  const auto first = static_cast<std::uint8_t>(*at);
  const std::size_t header = 4 * (first & 15u), length = load_be16(at + 2);
  if (first >> 4 != 4 || header < ipv4_header_bytes || length < header) return Drop::bad_ip_header;
  if (length > bytes.size()) return Drop::truncated;
  Checksum checksum;
  checksum.add(bytes.first(header));
  if (checksum.finish() != 0) return Drop::bad_ip_checksum;
  if ((load_be16(at + 6) & 0x3fff) != 0) return Drop::fragment;  // a fragment offset, or more fragments
  packet.source = ipv4(load_be32(at + 12));
  packet.target = ipv4(load_be32(at + 16));
  packet.protocol = static_cast<std::uint8_t>(at[9]);
  const auto traffic_class = static_cast<std::uint8_t>(at[1]);
  packet.ecn = static_cast<Ecn>(traffic_class & ecn_bits);
  packet.traffic_class = without_ecn(traffic_class);
  packet.payload = bytes.subspan(header, length - header);
  packet.hop_limit = static_cast<std::uint8_t>(at[8]);
  return Drop::none;
}

void write_ipv4_header(const IpPacket& packet, std::size_t payload_bytes,
                       std::span<std::byte, ipv4_header_bytes> to) noexcept {
  std::byte* at = to.data();
  at[0] = std::byte{0x45};
  at[1] = std::byte{packet.traffic_class} | static_cast<std::byte>(packet.ecn);
  store_be16(at + 2, static_cast<std::uint16_t>(ipv4_header_bytes + payload_bytes));
  store_be16(at + 4, 0);
  store_be16(at + 6, 0x4000);
  at[8] = std::byte{packet.hop_limit};
  at[9] = std::byte{packet.protocol};
  store_be32(at + 12, packet.source.v4());
  store_be32(at + 16, packet.target.v4());
  write_ipv4_checksum(to);
}

void write_ipv4_length(MutableBytes datagram) noexcept {
  store_be16(datagram.data() + 2, static_cast<std::uint16_t>(datagram.size()));
  write_ipv4_checksum(datagram);
}

void write_ipv4_checksum(MutableBytes datagram) noexcept {
  std::byte* at = datagram.data();
  store_be16(at + 10, 0);
  Checksum checksum;
  checksum.add(Bytes(at, 4 * (static_cast<std::size_t>(*at) & 15u)));
  store_be16(at + 10, checksum.finish());
}

}  // namespace offpath::tcp
