#include "tcp/segment/multicast_listener.h"

#include "tcp/segment/checksum.h"
#include "tcp/segment/ethernet.h"
#include "tcp/segment/ipv6.h"
#include "tcp/segment/neighbour_discovery.h"

namespace offpath::tcp {

namespace {

constexpr std::size_t query_bytes = 24, report_bytes = 28, router_alert_bytes = 8;
constexpr IpAddress mld_routers{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16}};

std::uint16_t checksum_of(const IpPacket& packet, Bytes message) noexcept {
  Checksum checksum;
  checksum.add_pseudo_header(packet.source, packet.target, protocol_icmpv6, static_cast<std::uint32_t>(message.size()));
  checksum.add(message);
  return checksum.finish();
}

}  // namespace

std::optional<TimeNs> read_listener_query(const IpPacket& packet, const IpAddress& group) noexcept {
  const Bytes bytes = packet.payload;
  if (packet.hop_limit != 1 || !is_link_local(packet.source) || bytes.size() < query_bytes ||
      bytes[0] != std::byte{mld_query} || checksum_of(packet, bytes) != 0)
    return std::nullopt;
  const auto asked = load<IpAddress>(&bytes[8]);
  if (!asked.is_unspecified() && asked != group) return std::nullopt;
  // Larger codes stand for more than half a minute.
  return std::min(load_be16(&bytes[4]), std::uint16_t{32'767}) * millisecond_ns;
}

void write_listener_report(const IpAddress& group, bool joins, const MacAddress& from, FrameToSend& frame) noexcept {
  constexpr std::uint8_t hop_by_hop_header = 0, is_exclude = 2, becomes_exclude = 4;  // of no source: from all
  frame = {};
  std::byte* const ip = frame.header.data() + ethernet_header_bytes;
  std::byte *const alert = ip + ipv6_header_bytes, *const message = alert + router_alert_bytes;
  write_ethernet_header({multicast_mac(mld_routers), from, ethertype_ipv6}, frame.header.data());
  IpPacket packet{.source = {}, .target = mld_routers, .protocol = hop_by_hop_header};
  packet.hop_limit = 1;
  write_ip_header(packet, router_alert_bytes + report_bytes, ip);
  store_be32(alert, std::uint32_t{protocol_icmpv6} << 24 | 0x0502);  // the option "router alert" of two bytes, zeros
  store_be32(alert + 4, 0x0100);                                     // and padding
  message[0] = std::byte{mld_report};
  store_be16(message + 6, 1);  // records
  message[8] = std::byte{joins ? becomes_exclude : is_exclude};
  store(message + 12, group);
  store_be16(message + 2, checksum_of(packet, Bytes(message, report_bytes)));
  frame.header_bytes =
      static_cast<std::uint8_t>(ethernet_header_bytes + ipv6_header_bytes + router_alert_bytes + report_bytes);
}

}  // namespace offpath::tcp
