#include "tcp/segment/checksum.h"

#include "tcp/segment/big_endian.h"

namespace offpath::tcp {
namespace {

std::uint64_t add_carry(std::uint64_t sum, std::uint64_t word) noexcept {
  sum += word;
  return sum + (sum < word);
}

std::uint16_t fold(std::uint64_t sum) noexcept {
  sum = (sum & 0xffffffff) + (sum >> 32);
  sum = (sum & 0xffffffff) + (sum >> 32);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

}  // namespace

void Checksum::add(Bytes bytes) noexcept {
  std::uint64_t sum = 0;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  // 32-bit words are added to two 64-bit sums: fewer than 2^32 words cannot overflow them, and consecutive additions do
  // not depend on each other.
  std::uint64_t even = 0, other = 0;
  for (; left >= 16; at += 16, left -= 16) {
    const auto first = load<std::uint64_t>(at), second = load<std::uint64_t>(at + 8);
    even += (first & 0xffffffff) + (first >> 32);
    other += (second & 0xffffffff) + (second >> 32);
  }
  sum = add_carry(even, other);
  for (; left >= 2; at += 2, left -= 2) sum = add_carry(sum, load<std::uint16_t>(at));
  if (left == 1) sum = add_carry(sum, static_cast<std::uint8_t>(*at));
  // Behind an odd number of bytes each byte has the other place in its word: the sum of swapped words is the swapped
  // sum.
  const std::uint16_t folded = fold(sum);
  sum_ = add_carry(sum_, odd_ ? __builtin_bswap16(folded) : folded);
  odd_ ^= bytes.size() % 2 == 1;
}

void Checksum::add_pseudo_header(const IpAddress& source, const IpAddress& target, std::uint8_t protocol,
                                 std::uint32_t bytes) noexcept {
  std::byte header[40];
  if (target.is_v4()) {
    store_be32(header, source.v4());
    store_be32(header + 4, target.v4());
    store_be16(header + 8, protocol);
    store_be16(header + 10, static_cast<std::uint16_t>(bytes));
    return add(Bytes(header, 12));
  }
  store(header, source);
  store(header + 16, target);
  store_be32(header + 32, bytes);
  store_be32(header + 36, protocol);
  add(header);
}

std::uint16_t Checksum::sum() const noexcept { return __builtin_bswap16(fold(sum_)); }

}  // namespace offpath::tcp
