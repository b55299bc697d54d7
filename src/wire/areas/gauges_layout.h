// The layout of a program's gauges, in a segment of the program. The program stores values and the agent reads them.
//
//   0    u64  lap        odd while the program writes several values that belong together
//   8    i64  read_ns    when it wrote them, by its CLOCK_REALTIME; 0: single values, each of the moment it is read
//   16   u64  cpu_ns     processor time that it took to get them so far; 0: not said
//   24   u64  count      of values
//   32   u64[4]          0
//   64        presence   a bit for each value, the lowest of the first word for the first one
//             values     8 bytes each
//
// Each word is aligned, so a single value is never torn. To read values that belong together, read the lap, then
// everything, then the lap again, each read after the previous one is complete: the values count if both laps are the
// same even number.
#pragma once

#include <cstddef>
#include <cstdint>

namespace offpath::wire {

struct GaugesHead {
  std::uint64_t lap;
  std::int64_t read_ns;
  std::uint64_t cpu_ns, count;
  std::uint64_t zero[4];
};
static_assert(sizeof(GaugesHead) == 64);

inline constexpr std::size_t gauges_max = 4096;
[[nodiscard]] constexpr std::size_t gauges_values_at(std::size_t count) noexcept {
  return sizeof(GaugesHead) + (count + 63) / 64 * 8;
}
[[nodiscard]] constexpr std::size_t gauges_bytes(std::size_t count) noexcept {
  return gauges_values_at(count) + 8 * count;
}

}  // namespace offpath::wire
