#include "tcp/segment/neighbour_message.h"

#include "tcp/segment/arp.h"
#include "tcp/segment/ethernet.h"
#include "tcp/segment/ipv6.h"
#include "tcp/segment/neighbour_discovery.h"

namespace offpath::tcp {

MacAddress group_mac(const IpAddress& address) noexcept {
  return address.is_v4() ? broadcast_mac : multicast_mac(solicited_node(address));
}

std::optional<NeighbourMessage> read_neighbour_frame(Bytes frame) noexcept {
  if (frame.size() < ethernet_header_bytes) return std::nullopt;
  const EthernetHeader header = read_ethernet_header(frame.data());
  const Bytes body = frame.subspan(ethernet_header_bytes);
  if (header.type == ethertype_arp) return read_arp(body);
  IpPacket packet;
  if (header.type != ethertype_ipv6 || read_ipv6(body, packet) != Drop::none || packet.protocol != protocol_icmpv6)
    return std::nullopt;
  return read_neighbour_discovery(packet, header.source);
}

void write_neighbour_frame(const NeighbourMessage& message, const MacAddress& from, const MacAddress& to,
                           FrameToSend& frame) noexcept {
  std::byte* const body = frame.header.data() + ethernet_header_bytes;
  const bool is_arp = message.target.is_v4();
  write_ethernet_header({to, from, is_arp ? ethertype_arp : ethertype_ipv6}, frame.header.data());
  std::size_t bytes = arp_bytes;
  if (is_arp)
    write_arp(message, std::span<std::byte, arp_bytes>(body, arp_bytes));
  else
    bytes =
        write_neighbour_discovery(message, to, std::span<std::byte, discovery_bytes_max>(body, discovery_bytes_max));
  frame.header_bytes = static_cast<std::uint8_t>(ethernet_header_bytes + bytes);
  frame.tcp_offset = 0;
  frame.checksum_partial = false;
  frame.segment_bytes = 0;
  frame.payload = {};
}

}  // namespace offpath::tcp
