#include "sift/split/row_form.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace offpath::sift {

namespace {

using frame::Field;
using frame::NodeLayout;
using frame::Type;

// The type without nullability, by which columns without nulls are compared.
Field type_of(Field field) {
  field.name.clear();
  field.metadata.clear();
  field.nullable = true;
  for (Field& child : field.children) child = type_of(std::move(child));
  return field;
}

std::string names_of(const frame::Schema& schema) {
  std::string names;
  for (const Field& field : schema.fields) {
    if (names.size() > 200) return names + ", ...";
    names += (names.empty() ? "" : ", ") + field.name;
  }
  return names;
}

Result<std::uint32_t> find_key(const frame::Schema& schema, std::string_view key) {
  std::uint32_t found = frame::none;
  for (std::uint32_t i = 0; i < schema.fields.size(); ++i) {
    if (schema.fields[i].name != key) continue;
    if (found != frame::none)
      return fail(Error::schema, "columns {} and {} are both called '{}', the name of the identifier", found, i, key);
    found = i;
  }
  if (found == frame::none)
    return fail(Error::schema, "there is no column '{}' with identifiers; there are: {}", key, names_of(schema));
  return found;
}

// The offsets of the identifiers of rows `first` to `last`: ascending, so that all lie within `bytes`, and none too
// long.
template <class Offset>
Status check_offsets(const std::byte* offsets, std::uint64_t first, std::uint64_t last, std::uint64_t bytes,
                     std::string_view key) {
  auto before = load<Offset>(offsets + first * sizeof(Offset));
  if (before < 0 || static_cast<std::uint64_t>(before) > bytes)
    return fail(Error::protocol, "the identifiers '{}' begin at {} of {} bytes", key, before, bytes);
  for (std::uint64_t row = first; row < last; ++row) {
    const auto end = load<Offset>(offsets + (row + 1) * sizeof(Offset));
    if (end < before || static_cast<std::uint64_t>(end) > bytes)
      return fail(Error::protocol, "the identifier '{}' of row {} is from {} to {} of {} bytes", key, row, before, end,
                  bytes);
    if (static_cast<std::uint64_t>(end - before) > long_key_bytes_max)
      return fail(Error::schema, "the identifier '{}' of row {} has {} bytes, at most {} are allowed", key, row,
                  end - before, long_key_bytes_max);
    before = end;
  }
  return {};
}

bool is_ascii(Bytes text) noexcept {
  std::byte all{0};
  for (const std::byte each : text) all |= each;
  return (all & std::byte{0x80}) == std::byte{0};
}

}  // namespace

std::uint32_t crc32c_of_identifiers(const RowsView& view) noexcept {
  const Identifiers& ids = view.ids;
  if (view.text == nullptr) return crc32c({ids.values, ids.rows * ids.value_bytes});
  return crc32c({view.text + view.offset(0), view.long_bytes}, crc32c({ids.values, (ids.rows + 1) * ids.value_bytes}));
}

Result<std::shared_ptr<const RowForm>> RowForm::make(const frame::Schema& schema, const KeyRule& key) {
  auto made = std::make_shared<RowForm>();
  OFP_ASSIGN(made->key_column_, find_key(schema, key.column));
  OFP_ASSIGN(made->form_, frame::make_template(schema, frame::page_alignment));
  const frame::Layout& layout = made->form_->layout;
  for (std::size_t i = 0; i < layout.columns.size(); ++i) {
    std::uint64_t values = 1;
    const NodeLayout* node = &layout.nodes[layout.columns[i]];
    for (; node->type == Type::fixed_list && values <= (1u << 20); ++node) values *= node->list_size;
    std::uint64_t width = values * node->value_bytes;
    if (i == made->key_column_) {
      OFP_ASSIGN(made->key_, KeyForm::make(schema.fields[i], static_cast<std::uint32_t>(width), key));
      width = made->key_.value_bytes();
    }
    if (width == 0 || width > (1u << 20) || node->dictionary != 0) {
      return fail(Error::unsupported,
                  "column '{}' is {}: sift pools take columns whose rows have the same number of bytes, 1 to {}",
                  schema.fields[i].name, frame::describe(schema.fields[i]), 1u << 20);
    }
    made->widths_.push_back(static_cast<std::uint32_t>(width));
    made->value_buffers_.push_back(node->buffer + 1);
    made->row_bytes_ += static_cast<std::uint32_t>(width);
  }
  const std::uint64_t head =
      made->form_->schema_message.size() + frame::message_prefix_bytes + made->form_->prototypes[0].metadata.size();
  const std::size_t pages = made->widths_.size() + (made->key_.is_text() ? 1 : 0);  // beside offsets there are bytes
  made->overhead_bytes_ = static_cast<std::uint32_t>(align_up(head, page_bytes) + pages * page_bytes + 16 +
                                                     (made->key_.is_text() ? sizeof(std::uint64_t) : 0));
  return made;
}

Result<std::shared_ptr<const RowForm>> RowForm::of_frame(Bytes bytes, const KeyRule& key) {
  OFP_ASSIGN(const frame::FrameView parsed, frame::parse_frame(bytes));
  OFP_ASSIGN(const frame::Schema schema, frame::read_schema(bytes, parsed));
  return make(schema, key);
}

Status RowForm::check_same_schema(Bytes bytes, const frame::FrameView& parsed) const {
  // The bytes are nearly always equal, because other agents and programs' streams use the same code.
  const std::vector<std::byte>& own = form_->schema_message;
  if (bytes.size() > own.size() && std::memcmp(bytes.data(), own.data(), own.size()) == 0) return {};
  OFP_ASSIGN(const frame::Schema found, frame::read_schema(bytes, parsed));
  if (found == form_->schema) return {};
  const frame::Schema& expected = form_->schema;
  if (found.fields.size() != expected.fields.size())
    return fail(Error::schema, "the frame has columns {}; the pool has {}", names_of(found), names_of(expected));
  for (std::size_t i = 0; i < found.fields.size(); ++i) {
    const Field &one = found.fields[i], &other = expected.fields[i];
    if (one.name == other.name && type_of(one) == type_of(other)) continue;
    return fail(Error::schema, "column {} is '{}' {}, but in the pool it is '{}' {}", i, one.name, frame::describe(one),
                other.name, frame::describe(other));
  }
  return {};
}

Result<RowsView> RowForm::view(Bytes bytes) const {
  OFP_ASSIGN(RowsView view, view_ends(bytes));
  OFP_TRY(check_text(view));
  return view;
}

Result<RowsView> RowForm::view_ends(Bytes bytes) const {
  OFP_ASSIGN(const frame::FrameView parsed, frame::parse_frame(bytes));
  OFP_TRY(check_same_schema(bytes, parsed));
  std::int64_t rows = 0;
  std::vector<frame::NodeShape> nodes;
  std::vector<frame::BufferPlace> buffers;
  OFP_TRY(frame::read_batch(form_->layout, bytes, parsed, rows, nodes, buffers));
  for (std::uint32_t node = 0; node < nodes.size(); ++node) {
    if (nodes[node].null_count == 0) continue;
    const bool key = node == form_->layout.columns[key_column_];
    return fail(Error::schema, "{} '{}' has {} nulls, but sift pools take none", key ? "the identifier" : "column",
                frame::path_of(form_->layout, node), nodes[node].null_count);
  }
  RowsView view;
  view.rows = static_cast<std::uint64_t>(rows);
  for (std::size_t i = 0; i < widths_.size(); ++i)
    view.columns.push_back({bytes.data() + buffers[value_buffers_[i]].offset, widths_[i]});
  view.ids = {view.columns[key_column_].values, widths_[key_column_], view.rows};
  if (key_.is_text())
    OFP_TRY(view_text(bytes, buffers, view));
  else if (key_.is_long())
    view.long_bytes = view.rows * key_bytes();
  return view;
}

Status RowForm::view_text(Bytes bytes, const std::vector<frame::BufferPlace>& buffers, RowsView& view) const {
  static constexpr std::uint64_t nothing = 0;  // without rows there need not be an offset
  const frame::BufferPlace& data = buffers[value_buffers_[key_column_] + 1];
  view.text = bytes.data() + data.offset;
  if (view.rows == 0) {
    view.ids.values = view.columns[key_column_].values = reinterpret_cast<const std::byte*>(&nothing);
    return {};
  }
  view.text_room = data.bytes;
  const std::uint64_t begin = view.offset(0), end = view.offset(view.rows);  // negative ones are large
  if (begin > end || end > data.bytes)
    return fail(Error::protocol, "the identifiers '{}' are from {} to {} of {} bytes", key_name(), begin, end,
                data.bytes);
  view.long_bytes = end - begin;
  return {};
}

Status RowForm::check_text(const RowsView& view) const {
  return view.rows == 0 ? Status{} : check_text(view, 0, view.rows);
}

Status RowForm::check_text(const RowsView& view, std::uint64_t first, std::uint64_t last) const {
  if (view.text == nullptr) return {};
  return key_bytes() == 4 ? check_offsets<std::int32_t>(view.ids.values, first, last, view.text_room, key_name())
                          : check_offsets<std::int64_t>(view.ids.values, first, last, view.text_room, key_name());
}

Result<Bytes> RowForm::checked_id(const RowsView& view, std::uint64_t row) const {
  OFP_TRY(check_text(view, row, row + 1));
  return view.value_of_id(row);
}

Status RowForm::check_utf8(const RowsView& view) const {
  const Type type = schema().fields[key_column_].type;
  if (type != Type::utf8 && type != Type::large_utf8) return {};
  if (is_ascii({view.text + (view.rows == 0 ? 0 : view.offset(0)), view.text_bytes()})) return {};  // as nearly always
  for (std::uint64_t row = 0; row < view.rows; ++row)
    if (!is_utf8(text_of(view.value_of_id(row))))
      return fail(Error::schema, "the identifier '{}' of row {} is not UTF-8: a column of bytes takes it", key_name(),
                  row);
  return {};
}

Result<RowForm::Made> RowForm::make_frame(std::uint64_t rows, const FrameMemory& memory,
                                          std::uint64_t text_bytes) const {
  // The frame is laid out as for columns that are read from another process; the reads are not used.
  constexpr std::uint64_t somewhere = page_bytes;
  frame::BatchView batch;
  frame::Plan plan;
  std::vector<frame::PlainColumn> columns(widths_.size(), {.address = somewhere});
  if (key_.is_text()) {
    if (!fits_frame(text_bytes))
      return fail(Error::too_large,
                  "the identifiers '{}' of {} rows have {} bytes, at most {} are allowed in one frame", key_name(),
                  rows, text_bytes, INT32_MAX);
    columns[key_column_].data = somewhere;
    columns[key_column_].data_bytes = text_bytes;
  }
  OFP_TRY(frame::flatten_plain(form_->layout, static_cast<std::int64_t>(rows), columns, batch));
  OFP_TRY(frame::make_plan(*form_, batch, {}, plan));
  OFP_ASSIGN(service::Buffer buffer, memory.cache->take(plan.frame_bytes, memory.user));
  Made made;
  frame::write_head(*form_, plan, buffer.bytes());
  for (const std::uint32_t index : value_buffers_) made.columns.push_back(buffer.data() + plan.buffers[index].offset);
  if (key_.is_text()) {
    made.text = buffer.data() + plan.buffers[value_buffers_[key_column_] + 1].offset;
    std::memset(made.columns[key_column_], 0, key_bytes());  // where the first one begins
  }
  made.frame = std::make_shared<service::Frame>();
  made.frame->buffer = std::move(buffer);
  made.frame->bytes = plan.frame_bytes;
  made.frame->rows = rows;
  made.frame->arrow = true;
  return made;
}

}  // namespace offpath::sift
