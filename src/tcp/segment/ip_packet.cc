#include "tcp/segment/ip_packet.h"

#include "tcp/segment/ethernet.h"
#include "tcp/segment/ipv4.h"
#include "tcp/segment/ipv6.h"

namespace offpath::tcp {

Drop read_ip(std::uint16_t ethertype, Bytes bytes, IpPacket& packet) noexcept {
  if (ethertype == ethertype_ipv4) return read_ipv4(bytes, packet);
  return ethertype == ethertype_ipv6 ? read_ipv6(bytes, packet) : Drop::other_protocol;
}

void write_ip_header(const IpPacket& packet, std::size_t payload_bytes, std::byte* to) noexcept {
  if (packet.target.is_v4())
    write_ipv4_header(packet, payload_bytes, std::span<std::byte, ipv4_header_bytes>(to, ipv4_header_bytes));
  else
    write_ipv6_header(packet, payload_bytes, std::span<std::byte, ipv6_header_bytes>(to, ipv6_header_bytes));
}

void write_ip_length(std::uint16_t ethertype, MutableBytes datagram) noexcept {
  if (ethertype == ethertype_ipv4)
    write_ipv4_length(datagram);
  else
    store_be16(datagram.data() + 4, static_cast<std::uint16_t>(datagram.size() - ipv6_header_bytes));
}

bool mark_congestion(MutableBytes frame) noexcept {
  if (frame.size() < ethernet_header_bytes) return false;
  const std::uint16_t type = read_ethernet_header(frame.data()).type;
  const MutableBytes datagram = frame.subspan(ethernet_header_bytes);
  IpPacket packet;
  if (read_ip(type, datagram, packet) != Drop::none || packet.ecn == Ecn::not_capable) return false;
  constexpr unsigned traffic_class_shift = 4;
  const auto mark = static_cast<std::byte>(Ecn::congested);
  if (type == ethertype_ipv4) {
    datagram[1] |= mark;
    write_ipv4_checksum(datagram);
  } else {
    datagram[1] |= mark << traffic_class_shift;
  }
  return true;
}

}  // namespace offpath::tcp
