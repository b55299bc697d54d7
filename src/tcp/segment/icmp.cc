#include "tcp/segment/icmp.h"

#include <algorithm>

#include "tcp/segment/checksum.h"
#include "tcp/segment/ipv4.h"
#include "tcp/segment/ipv6.h"

namespace offpath::tcp {

namespace {

using Why = IcmpUnreachable::Why;
constexpr std::size_t header_bytes = 8, quoted_of_tcp = 8;

Why why_of_ipv4(std::uint8_t code) noexcept {
  constexpr std::uint8_t protocol_unreachable = 2, port_unreachable = 3;
  if (code == icmp_fragmentation_needed) return Why::too_big;
  return code == protocol_unreachable || code == port_unreachable ? Why::refused : Why::unreachable;
}

Why why_of_ipv6(std::uint8_t type, std::uint8_t code) noexcept {
  constexpr std::uint8_t port_unreachable = 4, unknown_next_header = 1;
  if (type == icmpv6_too_big) return Why::too_big;
  return code == (type == icmpv6_parameter_problem ? unknown_next_header : port_unreachable) ? Why::refused
                                                                                             : Why::unreachable;
}

// The header of the quoted segment, if that is one of TCP from `self`; empty otherwise. Routers truncate the quoted
// datagram and may have changed its checksum: only the flow's addresses and ports are read.
Bytes quoted_tcp(Bytes quoted, const IpAddress& self, IpAddress& target) noexcept {
  if (self.is_v4()) {
    if (quoted.size() < ipv4_header_bytes) return {};
    const auto first = static_cast<std::uint8_t>(quoted[0]);
    const std::size_t header = 4 * (first & 15u);
    if (first >> 4 != 4 || header < ipv4_header_bytes || quoted.size() < header + quoted_of_tcp) return {};
    if (static_cast<std::uint8_t>(quoted[9]) != protocol_tcp || ipv4(load_be32(&quoted[12])) != self) return {};
    target = ipv4(load_be32(&quoted[16]));
    return quoted.subspan(header);
  }
  // No datagram of ours has extension headers.
  if (quoted.size() < ipv6_header_bytes + quoted_of_tcp || static_cast<std::uint8_t>(quoted[0]) >> 4 != 6) return {};
  if (static_cast<std::uint8_t>(quoted[6]) != protocol_tcp || load<IpAddress>(&quoted[8]) != self) return {};
  target = load<IpAddress>(&quoted[24]);
  return target.is_v4() ? Bytes() : quoted.subspan(ipv6_header_bytes);
}

}  // namespace

std::optional<IcmpUnreachable> read_icmp_unreachable(const IpPacket& packet) noexcept {
  const Bytes bytes = packet.payload;
  const bool is_v4 = packet.target.is_v4();
  if (packet.protocol != (is_v4 ? protocol_icmp : protocol_icmpv6) || bytes.size() < header_bytes) return std::nullopt;
  const auto type = static_cast<std::uint8_t>(bytes[0]), code = static_cast<std::uint8_t>(bytes[1]);
  const bool is_known = is_v4
                            ? type == icmp_unreachable
                            : type == icmpv6_unreachable || type == icmpv6_too_big || type == icmpv6_parameter_problem;
  if (!is_known) return std::nullopt;
  Checksum checksum;
  if (!is_v4)
    checksum.add_pseudo_header(packet.source, packet.target, protocol_icmpv6, static_cast<std::uint32_t>(bytes.size()));
  checksum.add(bytes);
  if (checksum.finish() != 0) return std::nullopt;
  IcmpUnreachable made;
  IpAddress target;
  const Bytes tcp = quoted_tcp(bytes.subspan(header_bytes), packet.target, target);
  if (tcp.empty()) return std::nullopt;
  made.why = is_v4 ? why_of_ipv4(code) : why_of_ipv6(type, code);
  made.mtu =
      is_v4 ? load_be16(&bytes[6]) : static_cast<std::uint16_t>(std::min(load_be32(&bytes[4]), std::uint32_t{65'535}));
  made.key = {{packet.target, load_be16(tcp.data())}, {target, load_be16(tcp.data() + 2)}};
  made.sequence = Sequence(load_be32(tcp.data() + 4));
  return made;
}

}  // namespace offpath::tcp
