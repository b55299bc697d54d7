// The columns of a sift pool: accepted schemas, the location of a frame's columns, and new frames of the same schema.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "frame/parse.h"
#include "frame/template.h"
#include "pool/table/frame_table.h"  // frames, and their memory
#include "sift/split/partition.h"

namespace offpath::sift {

using pool::FramePtr;
using service::BufferCache;

// The source of frames.
struct FrameMemory {
  std::shared_ptr<BufferCache> cache;
  uid_t user = 0;
};

// The columns of a frame in place. Valid as long as the frame.
struct RowsView {
  std::uint64_t rows = 0;
  std::vector<Column> columns;
  Identifiers ids;
};

class RowForm {
 public:
  // Columns have a fixed width, or are fixed_list of such, so that all rows have the same size; the column `key` is a
  // 32- or 64-bit integer.
  [[nodiscard]] static Result<std::shared_ptr<const RowForm>> make(const frame::Schema& schema, std::string_view key);
  [[nodiscard]] static Result<std::shared_ptr<const RowForm>> of_frame(Bytes frame, std::string_view key);

  // Fails if the frame has another schema, has nulls, or is not a frame.
  [[nodiscard]] Result<RowsView> view(Bytes frame) const;

  struct Made {
    FramePtr frame;
    std::vector<std::byte*> columns;  // rows x width each, to be filled
  };
  [[nodiscard]] Result<Made> make_frame(std::uint64_t rows, const FrameMemory& memory) const;

  [[nodiscard]] const std::vector<std::uint32_t>& widths() const noexcept {
    return widths_;
  }  // size of a row's value in each column
  [[nodiscard]] std::uint32_t row_bytes() const noexcept { return row_bytes_; }
  // The largest size of a frame beside its rows.
  [[nodiscard]] std::uint32_t overhead_bytes() const noexcept { return overhead_bytes_; }
  [[nodiscard]] std::uint32_t key_column() const noexcept { return key_column_; }
  [[nodiscard]] std::uint32_t key_bytes() const noexcept { return widths_[key_column_]; }
  [[nodiscard]] bool key_is_signed() const noexcept { return key_signed_; }
  [[nodiscard]] const frame::Schema& schema() const noexcept { return form_->schema; }
  [[nodiscard]] std::string_view key_name() const noexcept { return schema().fields[key_column_].name; }

 private:
  [[nodiscard]] Status check_same_schema(Bytes frame, const frame::FrameView& parsed) const;

  std::shared_ptr<const frame::Template> form_;
  std::vector<std::uint32_t> widths_;
  std::vector<std::uint32_t> value_buffers_;  // of each column, in the layout
  std::uint32_t row_bytes_ = 0, overhead_bytes_ = 0, key_column_ = 0;
  bool key_signed_ = false;
};

}  // namespace offpath::sift
