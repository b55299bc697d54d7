#include "tcp/segment/ipv6.h"

namespace offpath::tcp {

namespace {

// Next headers.
constexpr std::uint8_t hop_by_hop = 0, routing = 43, fragment = 44, destination_options = 60;

// Whether a node that knows none of these options goes on (RFC 8200, 4.2): the two highest bits of their types say so.
bool are_skippable(Bytes options) noexcept {
  while (!options.empty()) {
    const auto type = static_cast<std::uint8_t>(options[0]);
    if (type == 0) {  // one byte of padding
      options = options.subspan(1);
      continue;
    }
    if (type >> 6 != 0 || options.size() < 2) return false;
    const std::size_t bytes = 2 + static_cast<std::size_t>(options[1]);
    if (bytes > options.size()) return false;
    options = options.subspan(bytes);
  }
  return true;
}

// Takes the extension headers from the front of the payload.
Drop skip_extensions(IpPacket& packet) noexcept {
  for (unsigned count = 0;; ++count) {
    const std::uint8_t kind = packet.protocol;
    if (kind == fragment) return Drop::fragment;
    if (kind != hop_by_hop && kind != routing && kind != destination_options) return Drop::none;
    if (count == extension_headers_max || (kind == hop_by_hop && count > 0)) return Drop::bad_ip_header;
    const Bytes bytes = packet.payload;
    if (bytes.size() < 8) return Drop::truncated;
    const std::size_t length = 8 * (static_cast<std::size_t>(bytes[1]) + 1);
    if (length > bytes.size()) return Drop::truncated;
    const bool ends_here = kind == routing ? bytes[3] == std::byte{0}  // segments left
                                           : are_skippable(bytes.subspan(2, length - 2));
    if (!ends_here) return Drop::bad_ip_header;
    packet.protocol = static_cast<std::uint8_t>(bytes[0]);
    packet.payload = bytes.subspan(length);
  }
}

}  // namespace

Drop read_ipv6(Bytes bytes, IpPacket& packet) noexcept {
  if (bytes.size() < ipv6_header_bytes) return Drop::truncated;
  const std::byte* at = bytes.data();
  const std::uint32_t first = load_be32(at);
  const std::size_t length = load_be16(at + 4);
  if (first >> 28 != 6) return Drop::bad_ip_header;
  if (length > bytes.size() - ipv6_header_bytes) return Drop::truncated;
  packet.source = load<IpAddress>(at + 8);
  packet.target = load<IpAddress>(at + 24);
  // IPv4 addresses of this form are for interfaces between programs and never on a wire (RFC 4291, 2.5.5.2).
  if (packet.source.is_v4() || packet.target.is_v4()) return Drop::bad_ip_header;
  packet.protocol = static_cast<std::uint8_t>(at[6]);
  packet.hop_limit = static_cast<std::uint8_t>(at[7]);
  const auto traffic_class = static_cast<std::uint8_t>(first >> 20);
  packet.ecn = static_cast<Ecn>(traffic_class & ecn_bits);
  packet.traffic_class = without_ecn(traffic_class);
  packet.flow_label = first & 0xfffff;
  packet.payload = bytes.subspan(ipv6_header_bytes, length);
  return packet.protocol == protocol_tcp ? Drop::none : skip_extensions(packet);
}

void write_ipv6_header(const IpPacket& packet, std::size_t payload_bytes,
                       std::span<std::byte, ipv6_header_bytes> to) noexcept {
  std::byte* at = to.data();
  const std::uint32_t traffic_class = packet.traffic_class | static_cast<std::uint32_t>(packet.ecn);
  store_be32(at, 6u << 28 | traffic_class << 20 | packet.flow_label);
  store_be16(at + 4, static_cast<std::uint16_t>(payload_bytes));
  at[6] = std::byte{packet.protocol};
  at[7] = std::byte{packet.hop_limit};
  store(at + 8, packet.source);
  store(at + 24, packet.target);
}

}  // namespace offpath::tcp
