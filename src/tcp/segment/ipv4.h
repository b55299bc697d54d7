// IPv4 headers (RFC 791). Options are skipped. Fragments are dropped: TCP avoids them by path MTU discovery.
#pragma once

#include "tcp/segment/ip_packet.h"

namespace offpath::tcp {

inline constexpr std::size_t ipv4_header_bytes = ip_header_bytes(IpFamily::v4);

[[nodiscard]] Drop read_ipv4(Bytes bytes, IpPacket& packet) noexcept;

// With its checksum, "don't fragment", and identification zero, which unfragmented datagrams may have (RFC 6864).
void write_ipv4_header(const IpPacket& packet, std::size_t payload_bytes,
                       std::span<std::byte, ipv4_header_bytes> to) noexcept;

// Of a datagram with a header in front: its length, and the header's checksum.
void write_ipv4_length(MutableBytes datagram) noexcept;
void write_ipv4_checksum(MutableBytes datagram) noexcept;

}  // namespace offpath::tcp
