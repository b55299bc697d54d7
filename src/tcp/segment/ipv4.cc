#include "tcp/segment/ipv4.h"

#include "tcp/segment/checksum.h"
#include "tcp/segment/ethernet.h"

namespace offpath::tcp {

Drop read_ipv4(Bytes bytes, Ipv4Packet& packet) noexcept {
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
  packet.source = {load_be32(at + 12)};
  packet.target = {load_be32(at + 16)};
  packet.protocol = static_cast<std::uint8_t>(at[9]);
  packet.ecn = static_cast<Ecn>(static_cast<std::uint8_t>(at[1]) & 3);
  packet.payload = bytes.subspan(header, length - header);
  return Drop::none;
}

void write_ipv4_header(const Ipv4Packet& packet, std::size_t payload_bytes,
                       std::span<std::byte, ipv4_header_bytes> to) noexcept {
  std::byte* at = to.data();
  at[0] = std::byte{0x45};
  at[1] = static_cast<std::byte>(packet.ecn);
  store_be16(at + 2, static_cast<std::uint16_t>(ipv4_header_bytes + payload_bytes));
  store_be16(at + 4, 0);
  store_be16(at + 6, 0x4000);
  at[8] = std::byte{64};
  at[9] = std::byte{packet.protocol};
  store_be16(at + 10, 0);
  store_be32(at + 12, packet.source.value);
  store_be32(at + 16, packet.target.value);
  Checksum checksum;
  checksum.add(to);
  store_be16(at + 10, checksum.finish());
}

bool mark_congestion(MutableBytes frame) noexcept {
  if (frame.size() < ethernet_header_bytes || read_ethernet_header(frame.data()).type != ethertype_ipv4) return false;
  Ipv4Packet packet;
  if (read_ipv4(frame.subspan(ethernet_header_bytes), packet) != Drop::none || packet.ecn == Ecn::not_capable)
    return false;
  std::byte* at = frame.data() + ethernet_header_bytes;
  at[1] |= static_cast<std::byte>(Ecn::congested);
  store_be16(at + 10, 0);
  Checksum checksum;
  checksum.add(Bytes(at, 4 * (static_cast<std::size_t>(*at) & 15u)));
  store_be16(at + 10, checksum.finish());
  return true;
}

}  // namespace offpath::tcp
