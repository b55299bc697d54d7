// The loops that change bytes: free functions on plain arrays, written so that the compiler
// vectorises them. Everything else in a frame is moved as it is.
#pragma once

#include <cstddef>
#include <cstdint>

namespace offpath::frame {

// In place: bit i becomes bit i + bit_offset, for `count` bits. Reads (count + bit_offset + 7) / 8
// bytes and zeroes the bits after the last one up to there. bit_offset is 0..7.
void shift_bits(std::byte* bits, unsigned bit_offset, std::uint64_t count) noexcept;

// How many of the first `count` bits are 0.
[[nodiscard]] std::uint64_t count_zero_bits(const std::byte* bits, std::uint64_t count) noexcept;

// Subtracts `base` from each offset, wrapping.
void rebase32(std::byte* offsets, std::uint64_t count, std::uint32_t base) noexcept;
void rebase64(std::byte* offsets, std::uint64_t count, std::uint64_t base) noexcept;

// No offset below the one before it, none negative.
[[nodiscard]] bool offsets_ascend32(const std::byte* offsets, std::uint64_t count) noexcept;
[[nodiscard]] bool offsets_ascend64(const std::byte* offsets, std::uint64_t count) noexcept;

// target[i] = the value at rows + i * stride.
void gather_lane(const std::byte* rows, std::size_t stride_bytes, std::size_t value_bytes, std::uint64_t count,
                 std::byte* target) noexcept;

// Rows of exactly three values, such as positions x[n][3]: all lanes in one pass.
void split3x4(const std::byte* rows, std::uint64_t count, std::byte* x, std::byte* y, std::byte* z) noexcept;
void split3x8(const std::byte* rows, std::uint64_t count, std::byte* x, std::byte* y, std::byte* z) noexcept;

// Bit i of target is set if the byte at rows + i * stride is not 0. Unused bits of the last byte are 0.
void pack_bits(const std::byte* rows, std::size_t stride_bytes, std::uint64_t count, std::byte* target) noexcept;

}  // namespace offpath::frame
