// How memory of the other side is named: never by address alone.
#pragma once

#include <cstdint>

namespace offpath::wire {

// Segments have the high bit set; segment_flag | 0 is the channel segment. A range that is announced
// again keeps its id and gets the next generation, so a request made before names memory that is gone.
using RegionId = std::uint32_t;
inline constexpr RegionId segment_flag = 0x8000'0000u;
inline constexpr RegionId channel_segment = segment_flag;
[[nodiscard]] constexpr bool is_segment(RegionId id) noexcept { return (id & segment_flag) != 0; }

// A piece of the other side's memory as a request names it.
struct BufferRef {
  RegionId region;
  std::uint32_t generation;  // 0 for segments
  std::uint64_t offset;      // from the region's base
  std::uint64_t length;      // low 56 bits: bytes; high 8 bits: bit offset (0..7) of a bitmap
};
static_assert(sizeof(BufferRef) == 24);

inline constexpr std::uint64_t buffer_length_max = (1ull << 56) - 1;
[[nodiscard]] constexpr std::uint64_t buffer_length(const BufferRef& ref) noexcept { return ref.length & buffer_length_max; }
[[nodiscard]] constexpr unsigned buffer_bit_offset(const BufferRef& ref) noexcept {
  return static_cast<unsigned>(ref.length >> 56);
}

}  // namespace offpath::wire
