#include "tcp/port/core_of_frame.h"

#include "tcp/segment/ethernet.h"
#include "tcp/segment/ip_packet.h"
#include "wire/areas/flow_steering.h"

namespace offpath::tcp {

namespace {

constexpr std::size_t quoting_header_bytes = 8;  // of ICMP, before what it quotes
constexpr std::byte informational{0x80};         // a bit of ICMPv6's type

std::size_t ipv4_header_at(Bytes datagram) noexcept {
  return std::to_integer<std::size_t>(datagram[0] & std::byte{15}) * 4;
}

std::uint32_t core_of_ports(Bytes segment, const IpAddress& one, const IpAddress& other, std::uint32_t cores) noexcept {
  if (segment.size() < 4) return 0;
  return wire::core_of_flow(one, load_be16(segment.data()), other, load_be16(segment.data() + 2), cores);
}

std::uint32_t core_of_ipv4(Bytes datagram, std::uint32_t cores) noexcept {
  constexpr std::size_t protocol_at = 9, source_at = 12, target_at = 16, least = 20;
  const auto skip = [&](std::size_t bytes) {
    if (datagram.size() < bytes + least) return false;
    datagram = datagram.subspan(bytes);
    return true;
  };
  if (!skip(0)) return 0;
  if (datagram[protocol_at] == std::byte{protocol_icmp} && !skip(ipv4_header_at(datagram) + quoting_header_bytes))
    return 0;
  if (datagram[protocol_at] != std::byte{protocol_tcp} || datagram.size() < ipv4_header_at(datagram)) return 0;
  return core_of_ports(datagram.subspan(ipv4_header_at(datagram)), ipv4(load_be32(&datagram[source_at])),
                       ipv4(load_be32(&datagram[target_at])), cores);
}

std::uint32_t core_of_ipv6(Bytes datagram, std::uint32_t cores) noexcept {
  constexpr std::size_t next_header_at = 6, source_at = 8, target_at = 24, header_bytes = 40;
  if (datagram.size() < header_bytes) return 0;
  if (datagram[next_header_at] == std::byte{protocol_icmpv6}) {
    constexpr std::size_t quoted_at = header_bytes + quoting_header_bytes;
    if (datagram.size() < quoted_at + header_bytes || (datagram[header_bytes] & informational) != std::byte{0})
      return 0;
    datagram = datagram.subspan(quoted_at);
  }
  if (datagram[next_header_at] != std::byte{protocol_tcp}) return 0;
  return core_of_ports(datagram.subspan(header_bytes), load<IpAddress>(&datagram[source_at]),
                       load<IpAddress>(&datagram[target_at]), cores);
}

}  // namespace

std::uint32_t core_of_frame(Bytes frame, std::uint32_t cores) noexcept {
  if (frame.size() < ethernet_header_bytes) return 0;
  const Bytes datagram = frame.subspan(ethernet_header_bytes);
  switch (read_ethernet_header(frame.data()).type) {
    case ethertype_ipv4:
      return core_of_ipv4(datagram, cores);
    case ethertype_ipv6:
      return core_of_ipv6(datagram, cores);
    default:
      return 0;
  }
}

}  // namespace offpath::tcp
