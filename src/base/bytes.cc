#include "base/bytes.h"

#include <array>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace offpath {

namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78u : 0u);
    table[i] = value;
  }
  return table;
}

constexpr auto crc_table = make_table();

// The CRC register after `bytes` zero bytes, looked up by the register's four bytes. The CRC is linear: the shift of an
// xor is the xor of the shifts.
using Shift = std::array<std::array<std::uint32_t, 256>, 4>;

[[maybe_unused]] constexpr Shift make_shift(std::size_t bytes) {
  std::array<std::uint32_t, 32> of_bit{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    std::uint32_t value = 1u << bit;
    for (std::size_t i = 0; i < bytes; ++i) value = crc_table[value & 0xFF] ^ (value >> 8);
    of_bit[bit] = value;
  }
  Shift shift{};
  for (std::size_t place = 0; place < 4; ++place)
    for (std::size_t byte = 0; byte < 256; ++byte)
      for (std::size_t bit = 0; bit < 8; ++bit)
        if ((byte >> bit & 1) != 0) shift[place][byte] ^= of_bit[place * 8 + bit];
  return shift;
}

#if defined(__x86_64__) || defined(__aarch64__)

#if defined(__x86_64__)
#define OFP_WITH_CRC __attribute__((target("sse4.2,crc32")))
OFP_WITH_CRC inline std::uint32_t step8(std::uint32_t crc, const std::byte* at) noexcept {
  return static_cast<std::uint32_t>(_mm_crc32_u64(crc, load<std::uint64_t>(at)));
}
OFP_WITH_CRC inline std::uint32_t step1(std::uint32_t crc, std::byte byte) noexcept {
  return _mm_crc32_u8(crc, static_cast<std::uint8_t>(byte));
}
bool has_instruction() noexcept { return __builtin_cpu_supports("sse4.2"); }
#else
#define OFP_WITH_CRC __attribute__((target("+crc")))
OFP_WITH_CRC inline std::uint32_t step8(std::uint32_t crc, const std::byte* at) noexcept {
  return __crc32cd(crc, load<std::uint64_t>(at));
}
OFP_WITH_CRC inline std::uint32_t step1(std::uint32_t crc, std::byte byte) noexcept {
  return __crc32cb(crc, static_cast<std::uint8_t>(byte));
}
bool has_instruction() noexcept { return (getauxval(AT_HWCAP) & (1UL << 7)) != 0; }  // HWCAP_CRC32
#endif

// The instruction has a latency of three cycles and a throughput of one a cycle, so three stretches are computed at a
// time and combined afterwards.
constexpr std::size_t stretch = 512;
constexpr Shift over_stretch = make_shift(stretch);

std::uint32_t shifted(std::uint32_t crc) noexcept {
  return over_stretch[0][crc & 0xFF] ^ over_stretch[1][crc >> 8 & 0xFF] ^ over_stretch[2][crc >> 16 & 0xFF] ^
         over_stretch[3][crc >> 24];
}

OFP_WITH_CRC std::uint32_t crc32c_by_instruction(Bytes bytes, std::uint32_t seed) noexcept {
  std::uint32_t crc = ~seed;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 3 * stretch; at += 3 * stretch, left -= 3 * stretch) {
    std::uint32_t second = 0, third = 0;
    for (std::size_t i = 0; i < stretch; i += 8) {
      crc = step8(crc, at + i);
      second = step8(second, at + stretch + i);
      third = step8(third, at + 2 * stretch + i);
    }
    crc = shifted(shifted(crc) ^ second) ^ third;
  }
  for (; left >= 8; at += 8, left -= 8) crc = step8(crc, at);
  for (; left > 0; ++at, --left) crc = step1(crc, *at);
  return ~crc;
}

#else

std::uint32_t crc32c_by_instruction(Bytes bytes, std::uint32_t seed) noexcept { return crc32c_by_table(bytes, seed); }
bool has_instruction() noexcept { return false; }

#endif

}  // namespace

std::uint32_t crc32c_by_table(Bytes bytes, std::uint32_t seed) noexcept {
  std::uint32_t crc = ~seed;
  for (std::byte byte : bytes) crc = crc_table[(crc ^ static_cast<std::uint8_t>(byte)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

std::uint32_t crc32c(Bytes bytes, std::uint32_t seed) noexcept {
  static const bool instruction = has_instruction();
  return instruction ? crc32c_by_instruction(bytes, seed) : crc32c_by_table(bytes, seed);
}

}  // namespace offpath
