// Splits rows by some bits of their identifier: a radix partition that writes every part's columns straight to their
// final place, the buffers of outgoing Arrow frames.
//
//     identifiers ->  count_parts   counts the rows of each part, so that its frame can be laid out
//     columns     ->  Partition     block by block: one counting sort of the block's row numbers, then, column by
//                                   column, each part's rows of the block as one run (gathered from a block in the
//                                   cache, stored to one place for each part)
//
// Rows keep their order within a part. Output larger than a core's cache can bypass it, a cache line at a time
// (AVX-512): a line that is stored in full need not be read first, which saves a third of all memory traffic. Some
// processors are faster without it all the same, depending on the number of parts: the first large split tries both.
#pragma once

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

// Whether what is written stays in the cache, or bypasses it.
enum class Stores : std::uint8_t { cached, streamed };

class Partition {
 public:
  explicit Partition(SplitBits bits, Gather gather = best_gather());

  // `targets[column * parts + part]` points to the part's next row of that column, and is advanced by what was written.
  // Each has room for the counts of count_parts. Columns have ids.rows rows.
  void split(const Identifiers& ids, std::span<const Column> columns, std::span<std::byte*> targets);
  void split(const Identifiers& ids, std::span<const Column> columns, std::span<std::byte*> targets, Stores stores);

 private:
  enum class Found : std::uint8_t { nothing, cached, streamed };
  struct Rows {
    const Identifiers& ids;
    std::span<const Column> columns;
    std::span<std::byte*> targets;
  };

  // Splits stretches of so many rows with both stores, by turns, and notes which were faster. Returns how many rows it
  // has split: none if there are too few.
  std::uint64_t try_both(const Rows& rows, std::uint64_t stretch_rows, std::atomic<Found>& found);
  void split_rows(const Rows& rows, std::uint64_t first, std::uint64_t last, Stores stores);

  // The faster stores for large splits by so many bits, in this process.
  static std::atomic<Found>& found_for(std::uint32_t bits) noexcept;

  SplitBits bits_;
  Gather gather_;
  std::vector<std::uint16_t> part_of_row_;  // of the block
  std::vector<std::uint16_t> order_;        // the block's row numbers, part by part
  std::vector<std::uint32_t> begin_;        // of each part in order_; one more than parts
  std::vector<std::uint32_t> at_;
};

}  // namespace offpath::sift
