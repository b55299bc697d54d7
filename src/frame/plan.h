// The place of each part of a batch in the frame. One plan serves Arrow IPC and C structs (c_arrays.h) alike.
//
//   make_plan    checks the other process's description of the batch, then lays the frame out
//   (the caller reads: each Pull into the frame, each Block into scratch)
//   write_head   messages, end marker, zeros in every gap; before, during or after the reads
//   finish       after the reads: splits blocks, then the steps that change bytes
//
// Nothing here allocates once a Plan has seen a batch of its layout. A Plan belongs to one thread.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/bytes.h"
#include "frame/flatten.h"
#include "frame/template.h"

namespace offpath::frame {

// `bytes` at `address` of `memory` (BufferSource) go to `target` in the frame.
struct Pull {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t target = 0;
  std::uint32_t memory = 0;
};

// A column in an array of records: one value in each row of a Block.
struct Lane {
  std::uint64_t target = 0;        // in the frame
  std::uint32_t offset_bytes = 0;  // of the value in its row
  std::uint32_t value_bytes = 0;   // 0: a boolean, one byte per value in the row, one bit in the frame
};

// Rows of a block are no longer than this; records that are longer are several blocks.
inline constexpr std::uint32_t row_bytes_max = 16 * 1024;

// An array of records that holds several columns: read once, then split into its lanes. It may be
// read and split in slices of rows, so scratch memory can be smaller than `bytes`.
struct Block {
  std::uint64_t address = 0;  // of the first lane of row 0
  std::uint64_t bytes = 0;    // (rows - 1) * stride_bytes + row_bytes
  std::uint64_t rows = 0;
  std::uint32_t memory = 0;  // of the address
  std::uint32_t stride_bytes = 0;
  std::uint32_t row_bytes = 0;                 // from the first lane to the end of the last one
  std::uint32_t lane_begin = 0, lane_end = 0;  // in Plan::lanes
  std::uint64_t scratch = 0;                   // its place if all blocks are read at once

  // True if the rows are so far apart that the bytes between them are not read: each row is read by itself, right
  // behind the one before it. The bytes read stay in proportion to the frame, however large the stride is.
  [[nodiscard]] bool apart() const noexcept { return stride_bytes - row_bytes > page_bytes; }
  [[nodiscard]] std::uint32_t read_stride() const noexcept { return apart() ? row_bytes : stride_bytes; }
  [[nodiscard]] std::uint64_t read_bytes(std::uint64_t of_rows) const noexcept {
    return (of_rows - 1) * read_stride() + row_bytes;
  }
};

enum class StepKind : std::uint8_t {
  shift_bits,   // a bitmap that began within a byte
  count_nulls,  // the null count was not known
  offsets32,    // compare the last offset with the pulled bytes; subtract the first if it is not 0
  offsets64,
  union_codes,  // each names a child, and in a dense union each offset a value of it
};

// One change of bytes after they have arrived, in place in the frame.
struct Step {
  StepKind kind = StepKind::shift_bits;
  std::uint8_t bit_offset = 0;  // shift_bits
  std::uint32_t buffer = 0;     // in Layout::buffers
  std::uint64_t count = 0;      // bits, offsets, or codes
  std::uint64_t last = 0;       // offsets: the expected last one, counted from the first
};

// A buffer in the frame.
struct BufferPlace {
  std::uint64_t offset = 0;  // from the beginning of the frame
  std::uint64_t bytes = 0;   // 0: absent
};

struct PartPlace {
  std::uint64_t message = 0;  // where its prefix is
  std::uint64_t body = 0;
  std::uint64_t body_bytes = 0;  // a multiple of 8
};

// Bytes of the frame that no read fills: padding, and the one offset of an array of length 0.
struct Gap {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct PlanLimits {
  std::int64_t rows_max = std::numeric_limits<std::int64_t>::max();
  std::uint64_t frame_bytes_max = std::uint64_t{1} << 40;
};

struct Plan {
  std::uint64_t frame_bytes = 0;
  std::uint64_t pulled_bytes = 0;   // of all reads
  std::uint64_t scratch_bytes = 0;  // for all blocks at once; 0 in most plans
  std::int64_t rows = 0;
  std::vector<PartPlace> parts;      // as Layout::parts
  std::vector<NodeShape> nodes;      // as Layout::nodes; finish() fills null counts that were not known
  std::vector<BufferPlace> buffers;  // as Layout::buffers
  std::vector<Pull> pulls;
  std::vector<Block> blocks;
  std::vector<Lane> lanes;
  std::vector<Step> steps;
  std::vector<Gap> gaps;
};

// `view` may come from another process: every number is checked against the layout, the other
// numbers and the limits. Addresses are not looked at. After a failure the plan's content is undefined.
[[nodiscard]] Status make_plan(const Template& form, const BatchView& view, const PlanLimits& limits, Plan& plan);

// `frame` has plan.frame_bytes. Zeroes every gap, so nothing of an earlier frame shows through.
void write_head(const Template& form, const Plan& plan, MutableBytes frame);

// Rows [row_begin, row_end) of one block, of which `rows` holds row_begin first, and each row `stride_bytes` behind
// the one before it. A block with booleans is cut at multiples of 8 rows.
void split_rows(const Plan& plan, const Block& block, std::uint64_t row_begin, std::uint64_t row_end,
                const std::byte* rows, std::uint32_t stride_bytes, MutableBytes frame);

// All blocks at Block::scratch, read as they lie.
void split_blocks(const Plan& plan, Bytes scratch, MutableBytes frame);

// The steps, in place; also writes null counts into the head, so write_head comes before.
// Fails with Error::schema if offsets contradict the announced bytes (memory changed meanwhile), or if a union refers
// to a missing value, for which Arrow's libraries would read beyond memory.
[[nodiscard]] Status finish(const Template& form, Plan& plan, MutableBytes frame);

// Walks every offset and every dictionary index, which finish() does not: for code that computes on frames of programs
// it does not trust.
[[nodiscard]] Status check_contents(const Template& form, const Plan& plan, Bytes frame);

}  // namespace offpath::frame
