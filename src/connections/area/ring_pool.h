// The memory from which a program's larger rings come: units of 64 KiB, with a bit for each in the area. A ring takes a
// power of two of units, at a multiple of its size, and no more than a word of bits has.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/areas/tcp_area.h"

namespace offpath::channel {

class RingPool {
 public:
  static constexpr std::uint32_t unit_bytes = 64 << 10;
  static constexpr std::uint64_t word_bytes = 64ull * unit_bytes;  // of memory, for a word of bits
  static_assert(wire::tcp_ring_bytes_max <= word_bytes);

  explicit RingPool(std::span<std::uint64_t> words) noexcept : words_(words) {}

  [[nodiscard]] bool empty() const noexcept { return words_.empty(); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return words_.size() * word_bytes; }
  [[nodiscard]] bool is_unused() const noexcept {
    return std::ranges::all_of(words_, [](std::uint64_t word) { return word == 0; });
  }
  [[nodiscard]] std::uint64_t free_bytes() const noexcept {
    std::uint64_t units = 0;
    for (const std::uint64_t word : words_) units += static_cast<unsigned>(std::popcount(~word));
    return units * unit_bytes;
  }
  // The first unit of a free run; none: no run of so many bytes is free.
  [[nodiscard]] std::optional<std::uint32_t> take(std::uint32_t bytes) noexcept {
    const std::uint32_t units = bytes / unit_bytes;
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if (words_[i] == ~0ull) continue;
      for (std::uint32_t first = 0; first < 64; first += units) {
        if ((words_[i] & run(first, units)) != 0) continue;
        words_[i] |= run(first, units);
        return static_cast<std::uint32_t>(64 * i + first);
      }
    }
    return std::nullopt;
  }
  void keep(std::uint32_t unit, std::uint32_t bytes) noexcept {
    words_[unit / 64] |= run(unit % 64, bytes / unit_bytes);
  }
  void give(std::uint32_t unit, std::uint32_t bytes) noexcept {
    words_[unit / 64] &= ~run(unit % 64, bytes / unit_bytes);
  }
  void clear() noexcept { std::ranges::fill(words_, 0); }

 private:
  [[nodiscard]] static std::uint64_t run(std::uint32_t first, std::uint32_t units) noexcept {
    return (units == 64 ? ~0ull : (1ull << units) - 1) << first;
  }
  std::span<std::uint64_t> words_;
};

}  // namespace offpath::channel
