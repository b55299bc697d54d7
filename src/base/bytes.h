// Bytes: views, alignment, little-endian access, checksums. Everything on the wire is little endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace offpath {

static_assert(std::endian::native == std::endian::little, "Offpath's layouts are little endian");

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

inline constexpr std::uint64_t page_bytes = 4096;  // layouts are aligned to this, for any page size of the machine

// `alignment` is a power of two. The caller bounds `value`: the sum must not overflow.
[[nodiscard]] constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) noexcept {
  return (value + alignment - 1) & ~(alignment - 1);
}

// Bytes of a bitmap with one bit for each of `bits`.
[[nodiscard]] constexpr std::uint64_t bitmap_bytes(std::uint64_t bits) noexcept { return bits / 8 + (bits % 8 != 0); }

// Returns true and sets `sum` if a + b fits. For arithmetic on numbers that another process sent.
[[nodiscard]] constexpr bool checked_add(std::uint64_t a, std::uint64_t b, std::uint64_t& sum) noexcept {
  return !__builtin_add_overflow(a, b, &sum);
}
[[nodiscard]] constexpr bool checked_mul(std::uint64_t a, std::uint64_t b, std::uint64_t& product) noexcept {
  return !__builtin_mul_overflow(a, b, &product);
}

[[nodiscard]] inline Bytes bytes_of(std::string_view text) noexcept { return std::as_bytes(std::span(text)); }
[[nodiscard]] inline std::string_view text_of(Bytes bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Copies a trivially copyable value out of bytes that need not be aligned.
template <class T>
  requires std::is_trivially_copyable_v<T>
[[nodiscard]] T load(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
  requires std::is_trivially_copyable_v<T>
void store(std::byte* to, const T& value) noexcept {
  std::memcpy(to, &value, sizeof value);
}

// CRC-32C (Castagnoli, RFC 3720 B.4), by the processor's instruction where it has one.
[[nodiscard]] std::uint32_t crc32c(Bytes bytes, std::uint32_t seed = 0) noexcept;
[[nodiscard]] std::uint32_t crc32c_by_table(Bytes bytes, std::uint32_t seed = 0) noexcept;

}  // namespace offpath
