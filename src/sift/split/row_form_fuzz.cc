// A frame whose identifiers have any length, with arbitrary offsets and bytes, as a program or a member could send it:
// accepted identifiers lie within the frame, and split and sort into the same rows.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>

#include "sift/split/row_form.h"
#include "sift/tracks/track_run.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace offpath;
  using namespace offpath::sift;
  static const FrameMemory memory{BufferCache::make({.huge_pages = false}), 7};
  static const auto form = [] {
    frame::Schema schema;
    schema.fields.push_back({.name = "id", .type = frame::Type::utf8});
    schema.fields.push_back({.name = "x", .type = frame::Type::uint16});
    return RowForm::make(schema, {std::string("id"), KeyBy::hash}).value();
  }();
  if (size < 2) return 0;
  const std::uint64_t rows = data[0] % 32, text_bytes = rows == 0 ? 0 : data[1];
  const RowForm::Made made = form->make_frame(rows, memory, text_bytes).value();
  std::memset(made.frame->buffer.data() + (made.columns[0] - made.frame->buffer.data()), 0, (rows + 1) * 4);
  std::memcpy(made.columns[0], data + 2, std::min<std::size_t>(size - 2, (rows + 1) * 4));
  if (text_bytes > 0) std::memset(made.text, 'a', text_bytes);
  std::memset(made.columns[1], 0, rows * 2);
  const auto view = form->view({made.frame->buffer.data(), made.frame->bytes});
  if (!view) {
    OFP_ASSERT(!view.error().message.empty());
    return 0;
  }
  std::map<std::string, std::uint64_t> put, split, sorted;
  for (std::uint64_t row = 0; row < view->rows; ++row) ++put[std::string(text_of(view->value_of_id(row)))];
  if (rows == 0) return 0;
  const std::vector<Piece> pieces{{made.frame, *view, {{1, rows}}}};
  const std::vector<Part> parts = split_pieces(*form, pieces, {0, 2}, memory).value();
  for (const Part& part : parts) {
    const RowsView some = form->view({part.frame->buffer.data(), part.frame->bytes}).value();
    OFP_ASSERT(crc32c_of_identifiers(some) == part.crc32c_of_identifiers);
    for (std::uint64_t row = 0; row < some.rows; ++row) ++split[std::string(text_of(some.value_of_id(row)))];
  }
  const BlockPtr block = TrackRun::sort(form, pieces, memory).value()->block(0, memory).value();
  OFP_ASSERT(block->check());
  for (std::size_t key = 0; key < block->keys().size(); ++key) {
    const RowRange range = block->rows_of(key);
    sorted[std::string(text_of(block->long_bytes(key)))] = range.end - range.first;
  }
  OFP_ASSERT(split == put && sorted == put);
  return 0;
}
