// Sift pools: pieces of particles from agent to agent, and the tracks into which they are sorted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "wire/coding.h"
#include "wire/region.h"

namespace offpath::wire {

// Agent to agent: offers a piece of a sift pool (src/sift/piece.h). Answered by Done when the receiver has it, which
// may have to wait for room there.
struct PeerPiece {
  std::uint64_t user;
  std::uint64_t offer;    // as in PeerPut
  BufferRef object;       // no bytes: the mark of a flush
  std::string_view pool;  // with its options
  Bytes header;
};

// Done when everything that was put before is in the pool's tracks. A program asks its agent, which asks all members
// under one number.
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
// Answered like PoolGet or PeerGet.
struct SiftTracks {
  std::uint32_t element;  // used with `all`; otherwise the identifiers give it
  bool all;               // otherwise those of `identifiers`, which are ascending and belong to one element
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

// Done with the number of elements of a pool's tracks. The low bits of an identifier give its element.
struct SiftInfo {
  std::string_view pool;
};
inline constexpr std::size_t tracks_asked_max = 512;  // identifiers of one request

// Has the members write a pool's tracks to a directory, each its own. Done with the write's number, under which
// SiftWritten is asked. `wait_ns` holds for the whole write.
struct SiftWrite {
  std::int64_t wait_ns;
  std::string_view pool, directory;
};

// Answered by Written when the write is over, or after `wait_ns`; or by its failure. The end may be asked for again.
// `cancel` ends the write, and forgets it.
struct SiftWritten {
  std::uint64_t number;
  std::int64_t wait_ns;
  bool cancel;
};

// Agent to agent: the receiver's part of the sender's write `number`, for a program of `asker`. Answered by Written:
// after `wait_ns` if the part is not over.
struct PeerWrite {
  enum class What : std::uint8_t { begin, more, publish, finish, abandon } what;
  std::uint64_t user;  // the pool's owner
  std::uint64_t asker;
  std::uint64_t process, number;  // of the sender; they name the write in the directory
  std::int64_t wait_ns;
  std::string_view pool, directory;
};
inline constexpr std::size_t directory_bytes_max = 4095;  // as the kernel's PATH_MAX

// clang-format off: a list
#define OFFPATH_SIFT_MESSAGES(X) \
  X(PeerPiece) X(SiftFlush) X(PeerFlush) X(SiftTracks) X(PeerTracks) X(SiftInfo) X(SiftWrite) X(SiftWritten) \
  X(PeerWrite)
// clang-format on
OFFPATH_SIFT_MESSAGES(OFFPATH_DECLARE_CODING)

}  // namespace offpath::wire
