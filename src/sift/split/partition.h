// Splits rows by some bits of their identifier: a radix partition that writes every part's columns straight to their
// final place, the buffers of outgoing Arrow frames.
//
//     identifiers ->  count_parts   counts the rows of each part, so that its frame can be laid out
//     columns     ->  Partition     block by block: one counting sort of the block's row numbers, then, column by
//                                   column, each part's rows of the block as one run (gathered from a block in the
//                                   cache, stored to one place for each part)
//
// Rows keep their order within a part. Output larger than a core's cache can bypass it, a cache line at a time
// (AVX-512): a line that is stored in full need not be read first, which saves a third of all memory traffic. Each
// block's values can also be prefetched while the block before is gathered, because processors do not predict reads in
// the order of parts. The fastest way depends on the processor and on the number of parts: the first large split tries
// all.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"

namespace offpath::sift {

// Part of an identifier: (id >> shift) & (2^bits - 1).
struct SplitBits {
  std::uint32_t shift = 0;
  std::uint32_t bits = 0;  // 0 to split_bits_max

  [[nodiscard]] constexpr std::uint32_t parts() const noexcept { return 1u << bits; }
  [[nodiscard]] constexpr std::uint32_t part_of(std::uint64_t id) const noexcept {
    return static_cast<std::uint32_t>(shift < 64 ? id >> shift : 0) & (parts() - 1);
  }
};
inline constexpr std::uint32_t split_bits_max = 10;

// Identifiers of 4 or 8 bytes; signed ones count by their bits.
struct Identifiers {
  const std::byte* values = nullptr;
  std::uint32_t value_bytes = 8;
  std::uint64_t rows = 0;
};

// Adds to `counts`, which has bits.parts() elements.
void count_parts(const Identifiers& ids, SplitBits bits, std::span<std::uint64_t> counts) noexcept;

struct Column {
  const std::byte* values = nullptr;  // rows x value_bytes, dense
  std::uint32_t value_bytes = 0;
};

// The instructions for gathering: chosen by the processor's features, or by a test.
enum class Gather { scalar, avx2, avx512 };
[[nodiscard]] Gather best_gather() noexcept;

struct SplitWay {
  bool streamed;       // stores bypass the cache
  bool fetches_ahead;  // prefetches the next block's values
};
inline constexpr std::array<SplitWay, 3> split_ways = {{{true, true}, {false, true}, {true, false}}};

class Partition {
 public:
  explicit Partition(SplitBits bits, Gather gather = best_gather());

  // `targets[column * parts + part]` points to the part's next row of that column, and is advanced. Each has room for
  // the counts of count_parts. Columns have ids.rows rows.
  void split(const Identifiers& ids, std::span<const Column> columns, std::span<std::byte*> targets);
  void split(const Identifiers& ids, std::span<const Column> columns, std::span<std::byte*> targets, SplitWay way);

 private:
  struct Rows {
    const Identifiers& ids;
    std::span<const Column> columns;
    std::span<std::byte*> targets;
  };

  // Splits stretches of so many rows in all ways, by turns, and notes the fastest. Returns the number of rows that it
  // has split; 0 if there are too few.
  std::uint64_t try_ways(const Rows& rows, std::uint64_t stretch_rows, std::atomic<const SplitWay*>& fastest);
  void split_rows(const Rows& rows, std::uint64_t first, std::uint64_t last, SplitWay way);

  // The fastest way for large splits by so many bits in this process; null until one of them has tried.
  static std::atomic<const SplitWay*>& fastest_way(std::uint32_t bits) noexcept;

  SplitBits bits_;
  Gather gather_;
  std::vector<std::uint16_t> part_of_row_;  // of the block
  std::vector<std::uint16_t> order_;        // the block's row numbers, part by part
  std::vector<std::uint32_t> begin_;        // of each part in order_; one more than parts
  std::vector<std::uint32_t> at_;
};

}  // namespace offpath::sift
