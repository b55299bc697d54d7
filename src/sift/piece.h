// The unit of transfer between elements: one Arrow frame of the pool's schema, and a header.
//
// There is no column of time steps: a piece's rows are runs of one step each, in ascending order of steps.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "sift/split/geometry.h"

namespace offpath::sift {

// `rows` rows of one time step.
struct StepRun {
  std::int64_t step = 0;
  std::uint64_t rows = 0;

  bool operator==(const StepRun&) const = default;
};

// The publisher: a member and its life, because a restarted member counts its pieces from the beginning.
struct Source {
  std::string member;
  std::uint64_t incarnation = 0;

  auto operator<=>(const Source&) const = default;
};

struct PieceHeader {
  std::string pool;
  ElementId element;  // its destination
  Source source;
  std::uint64_t sequence =
      0;  // counts a source's pieces for this element, from 1; unchanged when a piece is published again
  std::uint64_t answered_below = 1;  // all below this were answered; a receiver that has not seen them has lost them
  std::uint64_t flush = 0;           // not 0: no rows, but the mark of this flush (sift.h)
  std::uint32_t overhead_bytes = 0;  // largest size of a frame of this schema beside its rows, including padding
  std::uint32_t crc32c = 0;          // of the identifiers, then of this header: seal() below
  std::vector<StepRun> runs;         // ascending steps, none of them empty

  [[nodiscard]] std::uint64_t rows() const noexcept;
  bool operator==(const PieceHeader&) const = default;
};

inline constexpr std::size_t runs_max = 1u << 20;
inline constexpr std::size_t pool_name_bytes_max = 1024;
inline constexpr std::size_t member_name_bytes_max = 255;

//   header   u32 magic "OFSP" | u16 version | u16 stage | u32 index | u32 crc32c | u32 overhead_bytes | u32 runs
//            | u64 incarnation | u64 sequence | u64 answered_below | u64 flush | u16 bytes, pool | u16 bytes, member
//            | { i64 step | u64 rows }...
[[nodiscard]] std::vector<std::byte> encode(const PieceHeader& header);
[[nodiscard]] Result<PieceHeader> decode_piece_header(Bytes bytes);  // arbitrary bytes

// The checksum covers identifiers and header. Links (TLS, RDMA's own) protect values: a checksum of all columns would
// take more than half of the time of the split, identifiers take an eighth. A wrong identifier or step would hide rows
// from every later reader.
[[nodiscard]] std::uint32_t seal(const PieceHeader& header, std::uint32_t crc32c_of_identifiers);

// "step000120" -> 120: the digits at the end of a row key.
[[nodiscard]] Result<std::int64_t> step_of(std::string_view row_key);

// The sequences of one source that were taken: all up to one, and a few intervals beyond it.
class TakenSequences {
 public:
  static constexpr std::size_t gaps_max = 1024;
  [[nodiscard]] bool has(std::uint64_t sequence) const noexcept;
  // False: it would leave more gaps than are remembered; the piece has to be offered again later.
  [[nodiscard]] bool can_take(std::uint64_t sequence) const noexcept;
  void take(std::uint64_t sequence) { take(sequence, sequence); }
  void take(std::uint64_t first, std::uint64_t last);
  void take(const TakenSequences& other);
  // Counts everything below it as taken.
  void take_below(std::uint64_t sequence);
  // Whether everything below it was taken.
  [[nodiscard]] bool has_all_below(std::uint64_t sequence) const noexcept { return upto_ + 1 >= sequence; }
  [[nodiscard]] std::size_t gaps() const noexcept { return later_.size(); }
  [[nodiscard]] std::uint64_t all_up_to() const noexcept { return upto_; }
  [[nodiscard]] const std::map<std::uint64_t, std::uint64_t>& later() const noexcept {
    return later_;
  }  // first -> last
  [[nodiscard]] std::uint64_t largest() const noexcept { return later_.empty() ? upto_ : later_.rbegin()->second; }
  bool operator==(const TakenSequences&) const = default;

 private:
  std::uint64_t upto_ = 0;
  std::map<std::uint64_t, std::uint64_t> later_;  // first -> last, none adjacent
};

}  // namespace offpath::sift
