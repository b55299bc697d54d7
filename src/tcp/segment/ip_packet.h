// An IP datagram, whichever family it has. ipv4.h and ipv6.h read and write its headers.
#pragma once

#include "tcp/segment/address.h"
#include "tcp/segment/big_endian.h"
#include "tcp/segment/drop.h"

namespace offpath::tcp {

inline constexpr std::uint8_t ecn_bits = 3;  // of the traffic class
[[nodiscard]] constexpr std::uint8_t without_ecn(std::uint8_t traffic_class) noexcept {
  return static_cast<std::uint8_t>(traffic_class & ~ecn_bits);
}
inline constexpr std::uint8_t protocol_icmp = 1, protocol_tcp = 6, protocol_icmpv6 = 58;

// The two ECN bits (RFC 3168): whether a router may mark a datagram instead of dropping it, and whether one did.
enum class Ecn : std::uint8_t { not_capable = 0, capable_1 = 1, capable_0 = 2, congested = 3 };

struct IpPacket {
  IpAddress source{}, target{};
  std::uint8_t protocol = 0;
  Ecn ecn = Ecn::not_capable;
  std::uint8_t traffic_class = 0;  // with zeros for the two bits of ECN
  Bytes payload{};
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;  // of IPv6 (RFC 6437)
};

[[nodiscard]] constexpr std::size_t ip_header_bytes(IpFamily family) noexcept {
  return family == IpFamily::v4 ? 20 : 40;  // without options and extension headers
}

// Sets `packet` if the datagram behind this type of an Ethernet header is valid. Bytes behind its length are padding of
// the frame.
[[nodiscard]] Drop read_ip(std::uint16_t ethertype, Bytes bytes, IpPacket& packet) noexcept;

// The header of the packet's family, of ip_header_bytes(), for `payload_bytes` behind it.
void write_ip_header(const IpPacket& packet, std::size_t payload_bytes, std::byte* to) noexcept;

// The datagram in a frame has `bytes` by now, its header included: writes its lengths, and IPv4's checksum.
void write_ip_length(std::uint16_t ethertype, MutableBytes datagram) noexcept;

// Marks the datagram in a frame as a congested router does. Returns false if its sender does not use ECN.
[[nodiscard]] bool mark_congestion(MutableBytes frame) noexcept;

}  // namespace offpath::tcp
