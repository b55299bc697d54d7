// The columns of a sift pool: accepted schemas, the location of a frame's columns, and new frames of the same schema.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "frame/parse.h"
#include "frame/template.h"
#include "pool/table/frame_table.h"  // frames, and their memory
#include "sift/split/key_form.h"
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
  Identifiers ids;                  // identifiers of any length: their offsets, of which there is one more than rows
  const std::byte* text = nullptr;  // the bytes of those
  std::uint64_t long_bytes = 0;     // of all long identifiers (KeyForm::is_long); 0 of others
  std::uint64_t text_room = 0;      // that `text` has

  // Bytes of the rows that do not follow from their number.
  [[nodiscard]] std::uint64_t text_bytes() const noexcept { return text == nullptr ? 0 : long_bytes; }
  // An identifier as it lies.
  [[nodiscard]] Bytes value_of_id(std::uint64_t row) const noexcept {
    if (text == nullptr) return {ids.values + row * ids.value_bytes, ids.value_bytes};
    const std::uint64_t at = offset(row);
    return {text + at, offset(row + 1) - at};
  }
  [[nodiscard]] std::uint64_t offset(std::uint64_t row) const noexcept {
    const std::byte* const at = ids.values + row * ids.value_bytes;
    return ids.value_bytes == 4 ? load<std::uint32_t>(at) : load<std::uint64_t>(at);
  }
};
// The place of the next identifier of any length in a frame that is being made.
struct TextTarget {
  std::byte *offsets = nullptr, *bytes = nullptr;  // where the last one ended, and all bytes
  std::uint64_t filled = 0;

  void add(Bytes value, std::uint32_t offset_bytes) noexcept {
    if (!value.empty()) std::memcpy(bytes + filled, value.data(), value.size());
    filled += value.size();
    offsets += offset_bytes;
    if (offset_bytes == 4)
      store(offsets, static_cast<std::uint32_t>(filled));
    else
      store(offsets, filled);
  }
};

// The checksum in a piece's seal, of identifiers or, where they have any length, of their offsets and bytes.
[[nodiscard]] std::uint32_t crc32c_of_identifiers(const RowsView& view) noexcept;

class RowForm {
 public:
  // Columns have a fixed width, or are fixed_list of such, so all rows have the same size apart from the identifier's;
  // key_form.h has the types of identifiers.
  [[nodiscard]] static Result<std::shared_ptr<const RowForm>> make(const frame::Schema& schema, const KeyRule& key);
  [[nodiscard]] static Result<std::shared_ptr<const RowForm>> of_frame(Bytes frame, const KeyRule& key);

  // Fails if the frame has another schema, has nulls, or is not a frame. Of identifiers of any length only the first
  // and the last offset are checked: no other one may be used before check_text.
  [[nodiscard]] Result<RowsView> view_ends(Bytes frame) const;
  // The same, with check_text.
  [[nodiscard]] Result<RowsView> view(Bytes frame) const;
  // Looks at the offsets of all identifiers of any length. Error::protocol: they contradict their bytes. Error::schema:
  // an identifier is too long.
  [[nodiscard]] Status check_text(const RowsView& view) const;
  // One identifier as it lies, checked as by check_text, which looks at all.
  [[nodiscard]] Result<Bytes> checked_id(const RowsView& view, std::uint64_t row) const;
  // Error::schema: the identifiers are text, and one is not UTF-8. After check_text.
  [[nodiscard]] Status check_utf8(const RowsView& view) const;

  // One frame can have so many bytes of identifiers: offsets of four bytes end at INT32_MAX.
  [[nodiscard]] bool fits_frame(std::uint64_t text_bytes) const noexcept {
    return !key_.is_text() || key_bytes() != sizeof(std::int32_t) || text_bytes <= INT32_MAX;
  }
  struct Made {
    FramePtr frame;
    std::vector<std::byte*> columns;  // rows x width each, to be filled; of identifiers of any length their offsets
    std::byte* text = nullptr;        // the bytes of those
  };
  // `text_bytes`: of all identifiers, where they have any length.
  [[nodiscard]] Result<Made> make_frame(std::uint64_t rows, const FrameMemory& memory,
                                        std::uint64_t text_bytes = 0) const;

  [[nodiscard]] const std::vector<std::uint32_t>& widths() const noexcept {
    return widths_;
  }  // size of a row's value in each column, or of its offset
  [[nodiscard]] std::uint32_t row_bytes() const noexcept { return row_bytes_; }
  // Bytes of a frame without its overhead_bytes(); `text_bytes`: of identifiers of any length.
  [[nodiscard]] std::uint64_t frame_bytes(std::uint64_t rows, std::uint64_t text_bytes) const noexcept {
    return rows * row_bytes_ + text_bytes;
  }
  // The largest size of a frame beside its rows.
  [[nodiscard]] std::uint32_t overhead_bytes() const noexcept { return overhead_bytes_; }
  [[nodiscard]] std::uint32_t key_column() const noexcept { return key_column_; }
  [[nodiscard]] std::uint32_t key_bytes() const noexcept { return widths_[key_column_]; }
  [[nodiscard]] const KeyForm& key() const noexcept { return key_; }
  [[nodiscard]] const frame::Schema& schema() const noexcept { return form_->schema; }
  [[nodiscard]] std::string_view key_name() const noexcept { return schema().fields[key_column_].name; }

 private:
  [[nodiscard]] Status check_same_schema(Bytes frame, const frame::FrameView& parsed) const;
  [[nodiscard]] Status check_text(const RowsView& view, std::uint64_t first, std::uint64_t last) const;
  [[nodiscard]] Status view_text(Bytes frame, const std::vector<frame::BufferPlace>& buffers, RowsView& view) const;

  std::shared_ptr<const frame::Template> form_;
  std::vector<std::uint32_t> widths_;
  std::vector<std::uint32_t> value_buffers_;  // of each column, in the layout
  std::uint32_t row_bytes_ = 0, overhead_bytes_ = 0, key_column_ = 0;
  KeyForm key_;
};

}  // namespace offpath::sift
