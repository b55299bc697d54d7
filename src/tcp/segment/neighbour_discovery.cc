#include "tcp/segment/neighbour_discovery.h"

#include "tcp/segment/checksum.h"
#include "tcp/segment/ethernet.h"
#include "tcp/segment/ipv6.h"

namespace offpath::tcp {

namespace {

constexpr std::size_t router_bytes = 8, router_advertisement_bytes = 16, neighbour_bytes = 24, option_bytes = 8;
constexpr std::uint8_t source_mac = 1, target_mac = 2;  // options
constexpr std::uint8_t of_router = 0x80, is_solicited = 0x40, does_override = 0x20;

// The hardware address in the option of this kind, which stays zero where there is none. False: an option has no size.
bool read_options(Bytes options, std::uint8_t kind, MacAddress& mac) noexcept {
  while (options.size() >= 2) {
    const std::size_t bytes = 8 * static_cast<std::size_t>(options[1]);
    if (bytes == 0 || bytes > options.size()) return false;
    if (options[0] == std::byte{kind} && bytes == option_bytes) mac = load<MacAddress>(&options[2]);
    options = options.subspan(bytes);
  }
  return options.empty();
}

std::optional<NeighbourMessage> read_solicitation(const IpPacket& packet, const MacAddress& from) noexcept {
  NeighbourMessage message;
  message.sender = packet.source;
  message.target = load<IpAddress>(&packet.payload[8]);
  if (!is_unicast(message.target) ||
      !read_options(packet.payload.subspan(neighbour_bytes), source_mac, message.sender_mac))
    return std::nullopt;
  const bool tells_mac = message.sender_mac != MacAddress{};
  if (packet.source.is_unspecified())
    return tells_mac || packet.target != solicited_node(message.target) ? std::nullopt : std::optional(message);
  if (!tells_mac) message.reply_to = from;
  return message;
}

std::optional<NeighbourMessage> read_advertisement(const IpPacket& packet) noexcept {
  NeighbourMessage message;
  message.reply = true;
  message.sender = load<IpAddress>(&packet.payload[8]);
  message.target = packet.target;
  const auto flags = static_cast<std::uint8_t>(packet.payload[4]);
  message.solicited = (flags & is_solicited) != 0;
  message.overrides = (flags & does_override) != 0;
  message.is_router = (flags & of_router) != 0;
  if (!is_unicast(message.sender) || (message.solicited && is_multicast(packet.target)) ||
      !read_options(packet.payload.subspan(neighbour_bytes), target_mac, message.sender_mac))
    return std::nullopt;
  return message;
}

std::optional<NeighbourMessage> read_router(const IpPacket& packet) noexcept {
  NeighbourMessage message;
  message.reply = true;
  message.solicited = false;
  message.sender = packet.source;
  message.target = packet.target;
  message.router_s = load_be16(&packet.payload[6]);
  if (!is_link_local(packet.source) ||
      !read_options(packet.payload.subspan(router_advertisement_bytes), source_mac, message.sender_mac))
    return std::nullopt;
  return message;
}

void write_icmpv6(const IpPacket& packet, std::size_t bytes, std::byte* datagram) noexcept {
  std::byte* const message = datagram + ipv6_header_bytes;
  write_ip_header(packet, bytes, datagram);
  Checksum checksum;
  checksum.add_pseudo_header(packet.source, packet.target, protocol_icmpv6, static_cast<std::uint32_t>(bytes));
  checksum.add(Bytes(message, bytes));
  store_be16(message + 2, checksum.finish());
}

void write_option(std::uint8_t kind, const MacAddress& mac, std::byte* to) noexcept {
  to[0] = std::byte{kind};
  to[1] = std::byte{option_bytes / 8};
  store(to + 2, mac);
}

}  // namespace

std::optional<NeighbourMessage> read_neighbour_discovery(const IpPacket& packet, const MacAddress& from) noexcept {
  const Bytes bytes = packet.payload;
  if (packet.hop_limit != discovery_hop_limit || bytes.size() < router_advertisement_bytes) return std::nullopt;
  const auto type = static_cast<std::uint8_t>(bytes[0]);
  const bool is_router = type == nd_router_advertisement;
  if (!is_router && type != nd_neighbour_solicitation && type != nd_neighbour_advertisement) return std::nullopt;
  if (bytes[1] != std::byte{0} || (!is_router && bytes.size() < neighbour_bytes)) return std::nullopt;
  Checksum checksum;
  checksum.add_pseudo_header(packet.source, packet.target, protocol_icmpv6, static_cast<std::uint32_t>(bytes.size()));
  checksum.add(bytes);
  if (checksum.finish() != 0) return std::nullopt;
  if (is_router) return read_router(packet);
  return type == nd_neighbour_solicitation ? read_solicitation(packet, from) : read_advertisement(packet);
}

std::size_t write_neighbour_discovery(const NeighbourMessage& message, const MacAddress& to,
                                      std::span<std::byte, discovery_bytes_max> datagram) noexcept {
  std::byte* const at = datagram.data() + ipv6_header_bytes;
  IpPacket packet{.source = message.sender, .target = message.target, .protocol = protocol_icmpv6};
  packet.hop_limit = discovery_hop_limit;
  store_be32(at, static_cast<std::uint32_t>(message.reply ? nd_neighbour_advertisement : nd_neighbour_solicitation)
                     << 24);
  store_be32(at + 4, 0);
  std::size_t bytes = neighbour_bytes;
  if (message.reply) {
    // One that has no address yet cannot be told alone.
    const bool asks_all = message.target.is_unspecified();
    if (asks_all) packet.target = all_nodes;
    at[4] = static_cast<std::byte>(does_override | (message.solicited && !asks_all ? is_solicited : 0));
    store(at + 8, message.sender);
  } else {
    if (!is_station(to)) packet.target = solicited_node(message.target);
    store(at + 8, message.target);
  }
  if (message.reply || !message.sender.is_unspecified()) {
    write_option(message.reply ? target_mac : source_mac, message.sender_mac, at + bytes);
    bytes += option_bytes;
  }
  write_icmpv6(packet, bytes, datagram.data());
  return ipv6_header_bytes + bytes;
}

void write_router_solicitation(const IpAddress& self, const MacAddress& mac, FrameToSend& frame) noexcept {
  frame = {};
  std::byte* const datagram = frame.header.data() + ethernet_header_bytes;
  std::byte* const at = datagram + ipv6_header_bytes;
  write_ethernet_header({multicast_mac(all_routers), mac, ethertype_ipv6}, frame.header.data());
  at[0] = std::byte{nd_router_solicitation};
  write_option(source_mac, mac, at + router_bytes);
  IpPacket packet{.source = self, .target = all_routers, .protocol = protocol_icmpv6};
  packet.hop_limit = discovery_hop_limit;
  write_icmpv6(packet, router_bytes + option_bytes, datagram);
  frame.header_bytes =
      static_cast<std::uint8_t>(ethernet_header_bytes + ipv6_header_bytes + router_bytes + option_bytes);
}

}  // namespace offpath::tcp
