// Sift pools: pieces of particles from agent to agent, and the tracks they end in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "wire/coding.h"
#include "wire/region.h"

namespace offpath::wire {

// Agent to agent: a piece of a sift pool (src/sift/piece.h), offered. Answered by Done when it is the reader's; that
// may take as long as it has no room.
struct PeerPiece {
  std::uint64_t user;
  std::uint64_t offer;    // as of PeerPut
  BufferRef object;       // no bytes: the mark of a flush
  std::string_view pool;  // with its options
  Bytes header;
};

// All that was put before is in its tracks; Done. A program asks its agent, that one asks all members under one number.
struct SiftFlush {
  std::int64_t wait_ns;
  std::string_view pool;
};

struct PeerFlush {
  std::uint64_t user;
  std::uint64_t number;
  std::int64_t wait_ns;
  std::string_view pool;
};

// Rows of one element's tracks, ordered by identifier and step, as one Arrow frame with the step as first column.
// Answered as PoolGet is, or as PeerGet.
struct SiftTracks {
  std::uint32_t element;  // of all; otherwise the identifiers tell it
  bool all;               // otherwise those of `identifiers`, which are ascending and of one element
  std::int64_t first_step, last_step;
  std::string_view pool;
  std::vector<std::uint64_t> identifiers;
};

struct PeerTracks {
  std::uint64_t user;
  std::uint64_t delivery;
  BufferRef inbox;
  std::string_view reader;
  std::uint32_t element;
  bool all;
  std::int64_t first_step, last_step;
  std::string_view pool;
  std::vector<std::uint64_t> identifiers;
};

// How many elements keep a pool's tracks: Done. The low bits of an identifier tell the element.
struct SiftInfo {
  std::string_view pool;
};
inline constexpr std::size_t tracks_asked_max = 512;  // identifiers of one request

// clang-format off: a list
#define OFFPATH_SIFT_MESSAGES(X) X(PeerPiece) X(SiftFlush) X(PeerFlush) X(SiftTracks) X(PeerTracks) X(SiftInfo)
// clang-format on
OFFPATH_SIFT_MESSAGES(OFFPATH_DECLARE_CODING)

}  // namespace offpath::wire
