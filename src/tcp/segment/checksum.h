// The Internet checksum (RFC 1071): the sum of 16-bit words in one's complement.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "tcp/segment/address.h"

namespace offpath::tcp {

class Checksum {
 public:
  // Adds bytes that follow those added before, also after an odd number of them.
  void add(Bytes bytes) noexcept;
  // The pseudo header of the addresses' family, which checksums of TCP and ICMPv6 cover, too (RFC 9293, 3.1; RFC 8200,
  // 8.1).
  void add_pseudo_header(const IpAddress& source, const IpAddress& target, std::uint8_t protocol,
                         std::uint32_t bytes) noexcept;

  // The checksum field, in the machine's byte order: store it with store_be16. It is 0 over bytes that contain their
  // own correct checksum.
  [[nodiscard]] std::uint16_t finish() const noexcept { return static_cast<std::uint16_t>(~sum()); }
  // Not complemented: the field's value for a card or kernel that completes the checksum.
  [[nodiscard]] std::uint16_t sum() const noexcept;

 private:
  std::uint64_t sum_ = 0;  // of words in memory order; carries are folded at the end
  bool odd_ = false;
};

}  // namespace offpath::tcp
