// Processing of the pieces that an element has accumulated: one pass over them, which writes every part's frame.
#pragma once

#include <memory>
#include <vector>

#include "sift/piece.h"
#include "sift/split/row_form.h"

namespace offpath::sift {

// A taken piece: its frame and the location of its columns.
struct Piece {
  FramePtr frame;
  RowsView view;
  std::vector<StepRun> runs;
};

// A stretch of rows of one step within the piece of that number.
struct Segment {
  std::int64_t step = 0;
  std::uint32_t piece = 0;
  std::uint64_t first_row = 0;
  std::uint64_t rows = 0;
};
// All stretches of the pieces in ascending order of steps, those of one step in the order of the pieces.
[[nodiscard]] std::vector<Segment> segments_of(const std::vector<Piece>& pieces);

struct Part {
  std::uint32_t number = 0;  // the value of the bits by which it was split
  FramePtr frame;
  std::vector<StepRun> runs;
  std::uint32_t crc32c_of_identifiers = 0;
};

// Parts without rows are left out. Within a part, rows of one step keep their order.
[[nodiscard]] Result<std::vector<Part>> split_pieces(const RowForm& form, const std::vector<Piece>& pieces,
                                                     SplitBits bits, const FrameMemory& memory);

// The largest size of the frames of `parts` parts with `rows` rows in all, as buffers of the cache.
[[nodiscard]] std::uint64_t parts_bytes_max(std::uint64_t rows, std::uint32_t row_bytes, std::uint32_t parts,
                                            std::uint32_t overhead_bytes) noexcept;

}  // namespace offpath::sift
