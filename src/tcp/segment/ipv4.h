// IPv4 headers (RFC 791). Options are skipped, fragments are not taken: TCP finds the path's MTU instead.
#pragma once

#include "tcp/segment/address.h"
#include "tcp/segment/big_endian.h"
#include "tcp/segment/drop.h"

namespace offpath::tcp {

inline constexpr std::size_t ipv4_header_bytes = 20;  // without options
inline constexpr std::uint8_t protocol_icmp = 1, protocol_tcp = 6;

// The two bits of RFC 3168: whether a router may mark a datagram instead of dropping it, and whether one did.
enum class Ecn : std::uint8_t { not_capable = 0, capable_1 = 1, capable_0 = 2, congested = 3 };

struct Ipv4Packet {
  Ipv4Address source, target;
  std::uint8_t protocol = 0;
  Ecn ecn = Ecn::not_capable;
  Bytes payload{};
};

// `packet` is set if nothing is wrong. Bytes behind the datagram's length are padding of the frame.
[[nodiscard]] Drop read_ipv4(Bytes bytes, Ipv4Packet& packet) noexcept;

// With its checksum, "don't fragment", and an identification of zero, which such datagrams do not need (RFC 6864).
void write_ipv4_header(const Ipv4Packet& packet, std::size_t payload_bytes,
                       std::span<std::byte, ipv4_header_bytes> to) noexcept;

// What a router does that is congested: marks the datagram in a frame, if its sender understands that. False: it does
// not.
[[nodiscard]] bool mark_congestion(MutableBytes frame) noexcept;

}  // namespace offpath::tcp
