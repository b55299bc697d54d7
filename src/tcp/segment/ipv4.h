// IPv4 headers (RFC 791). Options are skipped. Fragments are dropped: TCP avoids them by path MTU discovery.
#pragma once

#include "tcp/segment/address.h"
#include "tcp/segment/big_endian.h"
#include "tcp/segment/drop.h"

namespace offpath::tcp {

inline constexpr std::size_t ipv4_header_bytes = 20;  // without options
inline constexpr std::uint8_t protocol_icmp = 1, protocol_tcp = 6;

// The two ECN bits (RFC 3168): whether a router may mark a datagram instead of dropping it, and whether one did.
enum class Ecn : std::uint8_t { not_capable = 0, capable_1 = 1, capable_0 = 2, congested = 3 };

struct Ipv4Packet {
  Ipv4Address source, target;
  std::uint8_t protocol = 0;
  Ecn ecn = Ecn::not_capable;
  Bytes payload{};
};

// Sets `packet` if the datagram is valid. Bytes behind its length are padding of the frame.
[[nodiscard]] Drop read_ipv4(Bytes bytes, Ipv4Packet& packet) noexcept;

// With its checksum, "don't fragment", and identification zero, which unfragmented datagrams may have (RFC 6864).
void write_ipv4_header(const Ipv4Packet& packet, std::size_t payload_bytes,
                       std::span<std::byte, ipv4_header_bytes> to) noexcept;

// Marks the datagram in a frame as a congested router does. Returns false if its sender does not use ECN.
[[nodiscard]] bool mark_congestion(MutableBytes frame) noexcept;

}  // namespace offpath::tcp
