#include "tcp/segment/icmp.h"

#include "tcp/segment/checksum.h"

namespace offpath::tcp {

std::optional<IcmpUnreachable> read_icmp_unreachable(Bytes bytes, Ipv4Address self) noexcept {
  constexpr std::size_t header_bytes = 8, quoted_of_tcp = 8;
  if (bytes.size() < header_bytes + ipv4_header_bytes + quoted_of_tcp || bytes[0] != std::byte{icmp_unreachable})
    return std::nullopt;
  Checksum checksum;
  checksum.add(bytes);
  if (checksum.finish() != 0) return std::nullopt;
  // Routers truncate the quoted datagram and may have changed its checksum: only the flow's addresses and ports are
  // read.
  const Bytes quoted = bytes.subspan(header_bytes);
  const auto first = static_cast<std::uint8_t>(quoted[0]);
  const std::size_t header = 4 * (first & 15u);
  if (first >> 4 != 4 || header < ipv4_header_bytes || quoted.size() < header + quoted_of_tcp) return std::nullopt;
  if (static_cast<std::uint8_t>(quoted[9]) != protocol_tcp || load_be32(&quoted[12]) != self.value) return std::nullopt;
  const std::byte* tcp = &quoted[header];
  return IcmpUnreachable{static_cast<std::uint8_t>(bytes[1]), load_be16(&bytes[6]),
                         FlowKey{{self, load_be16(tcp)}, {{load_be32(&quoted[16])}, load_be16(tcp + 2)}},
                         Sequence(load_be32(tcp + 4))};
}

}  // namespace offpath::tcp
