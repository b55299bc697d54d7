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

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_instruction(Bytes bytes, std::uint32_t seed) noexcept {
  std::uint64_t crc = ~seed;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) crc = _mm_crc32_u64(crc, load<std::uint64_t>(at));
  auto crc_low = static_cast<std::uint32_t>(crc);
  for (; left > 0; ++at, --left) crc_low = _mm_crc32_u8(crc_low, static_cast<std::uint8_t>(*at));
  return ~crc_low;
}

bool has_instruction() noexcept { return __builtin_cpu_supports("sse4.2"); }

#elif defined(__aarch64__)

__attribute__((target("+crc"))) std::uint32_t crc32c_by_instruction(Bytes bytes, std::uint32_t seed) noexcept {
  std::uint32_t crc = ~seed;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) crc = __crc32cd(crc, load<std::uint64_t>(at));
  for (; left > 0; ++at, --left) crc = __crc32cb(crc, static_cast<std::uint8_t>(*at));
  return ~crc;
}

bool has_instruction() noexcept { return (getauxval(AT_HWCAP) & (1UL << 7)) != 0; }  // HWCAP_CRC32

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
