// One batch as addresses: a host program posts it, and the agent plans from it. Nothing is copied, and only the first
// and last offset of variable-size arrays are read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "frame/c_data.h"
#include "frame/layout.h"

namespace offpath::frame {

// As in an IPC field node.
struct NodeShape {
  std::int64_t length = 0;
  std::int64_t null_count = 0;  // -1: not known; the agent counts when the bitmap has arrived

  bool operator==(const NodeShape&) const = default;
};
static_assert(sizeof(NodeShape) == 16);

inline constexpr std::int64_t unknown_nulls = -1;

// One buffer where it lies in the program that owns it.
struct BufferSource {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;         // how many to read there; 0: the buffer is absent
  std::uint32_t stride_bytes = 0;  // 0: values side by side. Otherwise from one value to the next one, in an array of
                                   // records; a boolean is then a byte per value. Only values and bits
  std::uint8_t bit_offset = 0;     // validity and bits: where in the first byte the first bit is, 0..7
  std::uint8_t zero[3] = {0, 0, 0};
  std::uint32_t memory = 0;  // 0: the address is a pointer of this process. Otherwise an offset into that memory

  bool operator==(const BufferSource&) const = default;
};

// Reusable: a second batch of the same layout allocates nothing.
struct BatchView {
  std::int64_t rows = 0;
  std::vector<NodeShape> nodes;       // as Layout::nodes
  std::vector<BufferSource> buffers;  // as Layout::buffers
};

// `batch` is a struct array with the layout's columns (a record batch as Arrow libraries export it).
// It may be sliced, and so may any of its children: bytes are trimmed to the slice, bitmaps keep a bit offset, and
// offsets keep their values, which finish() (plan.h) shifts to begin at 0. A mismatch with the layout is Error::schema,
// with the path and both values.
[[nodiscard]] Status flatten(const Layout& layout, const ArrowArray& batch, BatchView& view);

// The same for a layout that is `gathered`, whose views and runs are laid out in `memory` (gather.h).
class OwnMemory;
[[nodiscard]] Status flatten(const Layout& layout, const ArrowArray& batch, BatchView& view, OwnMemory& memory);

// A column of plain memory, such as a NumPy array or a simulation's own.
struct PlainColumn {
  std::uint64_t address = 0;       // of the first value
  std::uint32_t stride_bytes = 0;  // as in BufferSource
  std::uint64_t validity = 0;      // address of its bitmap; 0: no nulls
  std::int64_t null_count = 0;     // read only with a bitmap; -1: not known
  std::uint32_t memory = 0;        // as in BufferSource
  // For binary and utf8, whose `address` is that of the offsets: the address of their bytes, required even without
  // bytes.
  std::uint64_t data = 0;
  std::uint64_t data_bytes = 0;
};

// Columns of fixed width, boolean, fixed_list of fixed width (whose values lie one list after the other), or of binary
// and utf8: rows and addresses are sufficient. One entry in `columns` for each column.
[[nodiscard]] Status flatten_plain(const Layout& layout, std::int64_t rows, std::span<const PlainColumn> columns,
                                   BatchView& view);

}  // namespace offpath::frame
