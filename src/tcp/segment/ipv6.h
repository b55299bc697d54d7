// IPv6 headers (RFC 8200). None of the sent datagrams has an extension header. Of received ones, hop-by-hop options,
// destination options and routing headers that are at their end are skipped. Fragments are dropped, as with IPv4.
#pragma once

#include "tcp/segment/ip_packet.h"

namespace offpath::tcp {

inline constexpr std::size_t ipv6_header_bytes = ip_header_bytes(IpFamily::v6);
inline constexpr std::uint16_t ipv6_mtu_least = 1280;  // of every link (RFC 8200, 5)
inline constexpr unsigned extension_headers_max = 8;   // more make no sense

[[nodiscard]] Drop read_ipv6(Bytes bytes, IpPacket& packet) noexcept;

void write_ipv6_header(const IpPacket& packet, std::size_t payload_bytes,
                       std::span<std::byte, ipv6_header_bytes> to) noexcept;

}  // namespace offpath::tcp
