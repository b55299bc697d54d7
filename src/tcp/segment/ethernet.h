// Ethernet: destination, source and type of a frame.
#pragma once

#include "tcp/segment/address.h"
#include "tcp/segment/big_endian.h"

namespace offpath::tcp {

inline constexpr std::size_t ethernet_header_bytes = 14;
inline constexpr std::uint16_t ethertype_ipv4 = 0x0800, ethertype_arp = 0x0806, ethertype_ipv6 = 0x86dd;

struct EthernetHeader {
  MacAddress target, source;
  std::uint16_t type = 0;
};

// The caller has checked that there are ethernet_header_bytes.
[[nodiscard]] inline EthernetHeader read_ethernet_header(const std::byte* from) noexcept {
  return {load<MacAddress>(from), load<MacAddress>(from + 6), load_be16(from + 12)};
}
inline void write_ethernet_header(const EthernetHeader& header, std::byte* to) noexcept {
  store(to, header.target);
  store(to + 6, header.source);
  store_be16(to + 12, header.type);
}

}  // namespace offpath::tcp
