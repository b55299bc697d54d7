// Names for memory of the other side, which is never identified by address alone.
#pragma once

#include <cstdint>

namespace offpath::wire {

// Segments have the high bit set; segment 0 is the channel segment. A range that is announced again keeps its id and
// gets the next generation, so that an older request names memory that no longer exists.
using RegionId = std::uint32_t;
inline constexpr RegionId segment_flag = 0x8000'0000u;
inline constexpr RegionId channel_segment = segment_flag;
// The part of the channel segment outside of its rings, in announcements by the control socket alone: a link whose card
// pins what it registers announces it when a request is stored there.
inline constexpr RegionId outside_part = 0xffff'ffffu;
[[nodiscard]] constexpr bool is_segment(RegionId id) noexcept { return (id & segment_flag) != 0; }

// A piece of the other side's memory, as a request names it.
//
//   0  region        u32
//   4  generation    u32   0 for segments
//   8  offset        u64   from the region's base
//  16  length        u64   bytes from there; 0: the buffer is absent
//  24  stride_bytes  u32   0: values side by side; otherwise from one value to the next, in an array of records
//  28  bit_offset    u8    bitmaps: where in the first byte the first bit is, 0..7
//  29  zero          u8[3]
struct BufferRef {
  RegionId region = 0;
  std::uint32_t generation = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint32_t stride_bytes = 0;
  std::uint8_t bit_offset = 0;
  std::uint8_t zero[3] = {0, 0, 0};
};
static_assert(sizeof(BufferRef) == 32);

// The limits of a region.
inline constexpr std::uint64_t region_bytes_max = 1ull << 43;
inline constexpr std::uint32_t regions_max = 1u << 20;  // of each kind, for one channel

}  // namespace offpath::wire
