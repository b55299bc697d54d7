// Bytes in a ring. Positions count bytes and only grow; the size of a ring is a power of two, so a position's place
// is its remainder, also after the count has wrapped.
#pragma once

#include <algorithm>

#include "base/bytes.h"
#include "base/status.h"

namespace offpath {

// `length` bytes from `position` on: up to the ring's end, and from its beginning. The second piece may be empty.
template <class Byte>
struct RingPieces {
  std::span<Byte> first, second;
};
template <class Byte>
[[nodiscard]] RingPieces<Byte> ring_pieces(std::span<Byte> ring, std::uint64_t position, std::size_t length) noexcept {
  OFP_ASSERT((ring.size() & (ring.size() - 1)) == 0 && length <= ring.size());
  const std::size_t at = position & (ring.size() - 1), first = std::min(length, ring.size() - at);
  return {ring.subspan(at, first), ring.first(length - first)};
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
