#include "tcp/segment/arp.h"

#include "tcp/segment/big_endian.h"

namespace offpath::tcp {
namespace {

// hardware and protocol types, and the lengths of their addresses
constexpr std::uint64_t ethernet_and_ipv4 = 0x0001'0800'06'04;

}  // namespace

std::optional<NeighbourMessage> read_arp(Bytes bytes) noexcept {
  if (bytes.size() < arp_bytes) return std::nullopt;
  const std::byte* at = bytes.data();
  if ((std::uint64_t{load_be32(at)} << 16 | load_be16(at + 4)) != ethernet_and_ipv4) return std::nullopt;
  const std::uint16_t operation = load_be16(at + 6);
  if (operation != 1 && operation != 2) return std::nullopt;
  return NeighbourMessage{operation == 2, load<MacAddress>(at + 8), ipv4(load_be32(at + 14)), load<MacAddress>(at + 18),
                          ipv4(load_be32(at + 24))};
}

void write_arp(const NeighbourMessage& message, std::span<std::byte, arp_bytes> to) noexcept {
  std::byte* at = to.data();
  store_be32(at, static_cast<std::uint32_t>(ethernet_and_ipv4 >> 16));
  store_be16(at + 4, static_cast<std::uint16_t>(ethernet_and_ipv4));
  store_be16(at + 6, message.reply ? 2 : 1);
  store(at + 8, message.sender_mac);
  store_be32(at + 14, message.sender.v4());
  store(at + 18, message.target_mac);
  store_be32(at + 24, message.target.v4());
}

}  // namespace offpath::tcp
