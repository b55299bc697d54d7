// The Internet checksum (RFC 1071): the sum of 16-bit words in one's complement.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "tcp/segment/address.h"

namespace offpath::tcp {

class Checksum {
 public:
  // Bytes that follow those added before; an odd number of them may be followed by more.
  void add(Bytes bytes) noexcept;
  // What TCP's checksum covers besides its own bytes (RFC 9293, 3.1).
  void add_pseudo_header(Ipv4Address source, Ipv4Address target, std::uint8_t protocol, std::uint32_t bytes) noexcept;

  // As the field has it, in the machine's byte order: store it with store_be16. Over bytes that contain their own
  // checksum it is 0.
  [[nodiscard]] std::uint16_t finish() const noexcept { return static_cast<std::uint16_t>(~sum()); }
  // Not complemented: what a card or kernel that completes the checksum wants to find in its field.
  [[nodiscard]] std::uint16_t sum() const noexcept;

 private:
  std::uint64_t sum_ = 0;  // of words as they lie in memory; their carries are folded at the end
  bool odd_ = false;
};

}  // namespace offpath::tcp
