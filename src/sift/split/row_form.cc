#include "sift/split/row_form.h"

#include <algorithm>

namespace offpath::sift {

namespace {

using frame::Field;
using frame::NodeLayout;
using frame::Type;

bool is_identifier(const Field& field) noexcept {
  return field.dictionary.empty() && (field.type == Type::int32 || field.type == Type::int64 ||
                                      field.type == Type::uint32 || field.type == Type::uint64);
}

// The type alone: what columns that have no nulls are compared by.
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
  if (!is_identifier(schema.fields[found])) {
    return fail(Error::schema, "the identifier '{}' is {}, expected int32, int64, uint32 or uint64", key,
                frame::describe(schema.fields[found]));
  }
  return found;
}

}  // namespace

Result<std::shared_ptr<const RowForm>> RowForm::make(const frame::Schema& schema, std::string_view key) {
  auto made = std::make_shared<RowForm>();
  OFP_ASSIGN(made->key_column_, find_key(schema, key));
  made->key_signed_ =
      schema.fields[made->key_column_].type == Type::int32 || schema.fields[made->key_column_].type == Type::int64;
  OFP_ASSIGN(made->form_, frame::make_template(schema, frame::page_alignment));
  const frame::Layout& layout = made->form_->layout;
  for (std::size_t i = 0; i < layout.columns.size(); ++i) {
    std::uint64_t values = 1;
    const NodeLayout* node = &layout.nodes[layout.columns[i]];
    for (; node->type == Type::fixed_list && values <= (1u << 20); ++node) values *= node->list_size;
    const std::uint64_t width = values * node->value_bytes;
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
  made->overhead_bytes_ =
      static_cast<std::uint32_t>(align_up(head, page_bytes) + made->widths_.size() * page_bytes + 16);
  return made;
}

Result<std::shared_ptr<const RowForm>> RowForm::of_frame(Bytes bytes, std::string_view key) {
  OFP_ASSIGN(const frame::FrameView parsed, frame::parse_frame(bytes));
  OFP_ASSIGN(const frame::Schema schema, frame::read_schema(bytes, parsed));
  return make(schema, key);
}

Status RowForm::check_same_schema(Bytes bytes, const frame::FrameView& parsed) const {
  // Nearly always the same bytes, because other agents and programs' streams use the same code.
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
  return view;
}

Result<RowForm::Made> RowForm::make_frame(std::uint64_t rows, const FrameMemory& memory) const {
  // The frame is laid out as for columns that are read from another process; the reads are not used.
  constexpr std::uint64_t somewhere = page_bytes;
  frame::BatchView batch;
  frame::Plan plan;
  const std::vector<frame::PlainColumn> columns(widths_.size(), {.address = somewhere});
  OFP_TRY(frame::flatten_plain(form_->layout, static_cast<std::int64_t>(rows), columns, batch));
  OFP_TRY(frame::make_plan(*form_, batch, {}, plan));
  OFP_ASSIGN(service::Buffer buffer, memory.cache->take(plan.frame_bytes, memory.user));
  Made made;
  frame::write_head(*form_, plan, buffer.bytes());
  for (const std::uint32_t index : value_buffers_) made.columns.push_back(buffer.data() + plan.buffers[index].offset);
  made.frame = std::make_shared<service::Frame>();
  made.frame->buffer = std::move(buffer);
  made.frame->bytes = plan.frame_bytes;
  made.frame->rows = rows;
  made.frame->arrow = true;
  return made;
}

}  // namespace offpath::sift
