// Bytes or slots in a ring. Positions count them and only grow; the size of a ring is a power of two, so a position's
// place is its remainder, also after the count has wrapped.
#pragma once

#include <algorithm>

#include "base/bytes.h"
#include "base/status.h"

namespace offpath {

// Where `count` bytes or slots from `position` on lie in a ring of `size`: `first` of them from `at` up to the ring's
// end at most, and `second` from its beginning.
struct RingRuns {
  std::uint64_t at, first, second;
};
[[nodiscard]] constexpr RingRuns ring_runs(std::uint64_t size, std::uint64_t position, std::uint64_t count) noexcept {
  const std::uint64_t at = position & (size - 1), first = std::min(count, size - at);
  return {at, first, count - first};
}

// `length` bytes from `position` on: up to the ring's end, and from its beginning. The second piece may be empty.
template <class Byte>
struct RingPieces {
  std::span<Byte> first, second;
};
template <class Byte>
[[nodiscard]] RingPieces<Byte> ring_pieces(std::span<Byte> ring, std::uint64_t position, std::size_t length) noexcept {
  OFP_ASSERT((ring.size() & (ring.size() - 1)) == 0 && length <= ring.size());
  const auto [at, first, second] = ring_runs(ring.size(), position, length);
  return {ring.subspan(at, first), ring.first(second)};
}

inline void copy_into_ring(MutableBytes ring, std::uint64_t position, Bytes from) noexcept {
  const auto [first, second] = ring_pieces(ring, position, from.size());
  if (!first.empty()) std::memcpy(first.data(), from.data(), first.size());
  if (!second.empty()) std::memcpy(second.data(), from.data() + first.size(), second.size());
}

inline void copy_out_of_ring(Bytes ring, std::uint64_t position, MutableBytes to) noexcept {
  const auto [first, second] = ring_pieces(ring, position, to.size());
  if (!first.empty()) std::memcpy(to.data(), first.data(), first.size());
  if (!second.empty()) std::memcpy(to.data() + first.size(), second.data(), second.size());
}

}  // namespace offpath
