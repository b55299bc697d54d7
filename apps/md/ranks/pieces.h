// Messages of any size in pieces whose size MPI can count.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace md {

inline constexpr std::size_t piece_max = std::size_t{1} << 30;

// Calls each(piece) in order; for no bytes not at all. Sender and receiver, who know the size, have the same pieces.
template <class Byte, class Each>
void in_pieces(std::span<Byte> bytes, std::size_t piece, const Each& each) {
  for (std::size_t at = 0; at < bytes.size(); at += piece) each(bytes.subspan(at, std::min(piece, bytes.size() - at)));
}

}  // namespace md
