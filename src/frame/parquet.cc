#include "frame/parquet.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "frame/template.h"

namespace offpath::frame {

namespace {

constexpr std::string_view magic = "PAR1";
constexpr std::size_t put_at_once_bytes = 16 << 10;  // of values that are stored in another form

// ---- Thrift's compact protocol

enum class Kind : std::uint8_t {
  yes = 1,
  no = 2,
  i8 = 3,
  i16 = 4,
  i32 = 5,
  i64 = 6,
  binary = 8,
  list = 9,
  structure = 12
};

void put_byte(std::vector<std::byte>& to, std::uint8_t byte) { to.push_back(std::byte{byte}); }
void put_varint(std::vector<std::byte>& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) put_byte(to, static_cast<std::uint8_t>(value | 0x80));
  put_byte(to, static_cast<std::uint8_t>(value));
}
void put_zigzag(std::vector<std::byte>& to, std::int64_t value) {
  put_varint(to, (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63));
}
void put_bytes(std::vector<std::byte>& to, Bytes bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }
void put_text(std::vector<std::byte>& to, std::string_view text) {
  put_varint(to, text.size());
  put_bytes(to, bytes_of(text));
}
void put_list_head(std::vector<std::byte>& to, Kind kind, std::size_t size) {
  const auto low = static_cast<std::uint8_t>(kind);
  if (size < 15) return put_byte(to, static_cast<std::uint8_t>(size << 4 | low));
  put_byte(to, static_cast<std::uint8_t>(0xF0 | low));
  put_varint(to, size);
}

// Fields in ascending order of their numbers, then end().
class Struct {
 public:
  explicit Struct(std::vector<std::byte>& to) : to_(to) {}
  void number(int field, std::int32_t value) { head(field, Kind::i32), put_zigzag(to_, value); }
  void long_number(int field, std::uint64_t value) {
    head(field, Kind::i64), put_zigzag(to_, static_cast<std::int64_t>(value));
  }
  void text(int field, std::string_view text) { head(field, Kind::binary), put_text(to_, text); }
  void bytes(int field, Bytes bytes) { text(field, text_of(bytes)); }
  void flag(int field, bool value) { head(field, value ? Kind::yes : Kind::no); }
  std::vector<std::byte>& list(int field, Kind kind, std::size_t size) {
    head(field, Kind::list);
    put_list_head(to_, kind, size);
    return to_;
  }
  [[nodiscard]] Struct structure(int field) {
    head(field, Kind::structure);
    return Struct(to_);
  }
  void empty_structure(int field) { structure(field).end(); }
  void end() { put_byte(to_, 0); }

 private:
  void head(int field, Kind kind) {
    put_byte(to_, static_cast<std::uint8_t>((field - last_) << 4 | static_cast<int>(kind)));  // the step is at most 15
    last_ = field;
  }
  std::vector<std::byte>& to_;
  int last_ = 0;
};

// ---- types of Parquet

enum Physical : std::int32_t { int32 = 1, int64 = 2, floating = 4, doubled = 5, byte_array = 6, fixed = 7 };
enum Repetition : std::int32_t { required = 0, optional = 1, repeated = 2 };
constexpr std::int32_t plain = 0, rle = 3;

struct Stored {
  Physical physical;
  std::uint32_t bytes;     // of a value in the file; of text and binary 0
  std::int32_t converted;  // ConvertedType; -1: none
};

std::optional<Stored> stored_of(const Field& field) {
  switch (field.type) {
    case Type::int8:
      return Stored{int32, 4, 15};
    case Type::int16:
      return Stored{int32, 4, 16};
    case Type::int32:
      return Stored{int32, 4, 17};
    case Type::int64:
      return Stored{int64, 8, 18};
    case Type::uint8:
      return Stored{int32, 4, 11};
    case Type::uint16:
      return Stored{int32, 4, 12};
    case Type::uint32:
      return Stored{int32, 4, 13};
    case Type::uint64:
      return Stored{int64, 8, 14};
    case Type::float16:
      return Stored{fixed, 2, -1};
    case Type::float32:
      return Stored{floating, 4, -1};
    case Type::float64:
      return Stored{doubled, 8, -1};
    case Type::date32:
      return Stored{int32, 4, 6};
    case Type::duration:
      return Stored{int64, 8, -1};
    case Type::time32:
      if (field.unit == Unit::millisecond) return Stored{int32, 4, -1};
      return std::nullopt;
    case Type::time64:
      return Stored{int64, 8, -1};
    case Type::timestamp:
      if (field.unit != Unit::second) return Stored{int64, 8, -1};
      return std::nullopt;
    case Type::fixed_binary:
      return Stored{fixed, static_cast<std::uint32_t>(field.width), -1};
    case Type::decimal128:
      return Stored{fixed, 16, 5};
    case Type::decimal256:
      return Stored{fixed, 32, 5};
    case Type::utf8:
    case Type::large_utf8:
      return Stored{byte_array, 0, 0};
    case Type::binary:
    case Type::large_binary:
      return Stored{byte_array, 0, -1};
    default:
      return std::nullopt;
  }
}

// LogicalType, for types that ConvertedType lacks.
void put_logical(Struct& element, const Field& field) {
  constexpr int logical = 10, time = 7, timestamp = 8, half = 15;
  if (field.type == Type::float16) {
    Struct type = element.structure(logical);
    type.empty_structure(half);
    type.end();
  }
  const bool is_timestamp = field.type == Type::timestamp;
  if (!is_timestamp && field.type != Type::time32 && field.type != Type::time64) return;
  Struct type = element.structure(logical);
  Struct what = type.structure(is_timestamp ? timestamp : time);
  what.flag(1, is_timestamp && !field.timezone.empty());
  Struct unit = what.structure(2);
  unit.empty_structure(static_cast<int>(field.unit));  // milliseconds are 1 in both enumerations
  unit.end();
  what.end();
  type.end();
}

std::string base64_of(Bytes bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t left = std::min<std::size_t>(bytes.size() - at, 3);
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8 | (i < left ? std::to_integer<std::uint32_t>(bytes[at + i]) : 0);
    for (std::size_t i = 0; i < 4; ++i) text += i <= left ? digits[group >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

// ---- levels

// In the hybrid of runs and packed bits, with its length in front: `count` times the same level.
void put_same_levels(std::vector<std::byte>& to, std::uint64_t count, std::uint32_t level) {
  std::vector<std::byte> run;
  put_varint(run, count << 1);
  put_byte(run, static_cast<std::uint8_t>(level));  // at most depth_max * 2, so one byte
  const auto bytes = static_cast<std::uint32_t>(run.size());
  put_bytes(to, std::as_bytes(std::span(&bytes, 1)));
  put_bytes(to, run);
}

// 0 where a row begins; the number of a list's depth where one of its values follows another one.
void put_repetition_levels(std::vector<std::byte>& to, std::uint64_t rows, const ParquetForm::Column& column) {
  std::vector<std::uint8_t> row(column.row_values);
  for (std::uint64_t value = 1; value < column.row_values; ++value) {
    std::uint64_t below = value;
    auto level = static_cast<std::uint8_t>(column.list_sizes.size());
    for (std::size_t depth = column.list_sizes.size(); below % column.list_sizes[depth - 1] == 0; --depth) {
      below /= column.list_sizes[depth - 1];
      level = static_cast<std::uint8_t>(depth - 1);
    }
    row[value] = level;
  }
  const auto width = static_cast<unsigned>(std::bit_width(column.list_sizes.size()));
  const std::uint64_t values = rows * column.row_values, groups = (values + 7) / 8;
  std::vector<std::byte> run;
  put_varint(run, groups << 1 | 1);
  const std::size_t begin = run.size();
  run.resize(begin + groups * width);
  std::uint64_t bit = 0, in_row = 0;
  for (std::uint64_t value = 0; value < values; ++value, bit += width) {
    for (unsigned i = 0; i < width; ++i)
      if ((row[in_row] >> i & 1) != 0)
        run[begin + (bit + i) / 8] |= std::byte{static_cast<std::uint8_t>(1u << (bit + i) % 8)};
    if (++in_row == column.row_values) in_row = 0;
  }
  const auto bytes = static_cast<std::uint32_t>(run.size());
  put_bytes(to, std::as_bytes(std::span(&bytes, 1)));
  put_bytes(to, run);
}

// ---- statistics

struct Bounds {
  std::array<std::byte, 8> least{}, largest{};
};

// `InFile` is the form in the file: integers of less than four bytes have four there.
template <class Value, class InFile = Value>
Bounds bounds_in(const std::byte* from, std::uint64_t count) {
  Value least = std::numeric_limits<Value>::max(), largest = std::numeric_limits<Value>::lowest();
  for (std::uint64_t i = 0; i < count; ++i) {
    const Value value = load<Value>(from + i * sizeof(Value));
    least = std::min(least, value);
    largest = std::max(largest, value);
  }
  Bounds bounds;
  store(bounds.least.data(), static_cast<InFile>(least));
  store(bounds.largest.data(), static_cast<InFile>(largest));
  return bounds;
}

Bounds bounds_of(Type type, const std::byte* from, std::uint64_t count) {
  switch (type) {
    case Type::int8:
      return bounds_in<std::int8_t, std::int32_t>(from, count);
    case Type::int16:
      return bounds_in<std::int16_t, std::int32_t>(from, count);
    case Type::int32:
      return bounds_in<std::int32_t>(from, count);
    case Type::int64:
      return bounds_in<std::int64_t>(from, count);
    case Type::uint8:
      return bounds_in<std::uint8_t, std::int32_t>(from, count);
    case Type::uint16:
      return bounds_in<std::uint16_t, std::int32_t>(from, count);
    case Type::uint32:
      return bounds_in<std::uint32_t>(from, count);
    case Type::uint64:
      return bounds_in<std::uint64_t>(from, count);
    default:
      OFP_ASSERT(!"only integers order the rows of a file");
  }
}

bool is_reversed(Type type) noexcept { return type == Type::decimal128 || type == Type::decimal256; }

// How a value is stored that has another form there. Small integers have four bytes, and decimals their highest byte
// first.
void change(Type type, const std::byte* from, std::byte* to) noexcept {
  switch (type) {
    case Type::decimal128:
      std::reverse_copy(from, from + 16, to);
      return;
    case Type::decimal256:
      std::reverse_copy(from, from + 32, to);
      return;
    case Type::int8:
      return store(to, std::int32_t{load<std::int8_t>(from)});
    case Type::uint8:
      return store(to, std::int32_t{load<std::uint8_t>(from)});
    case Type::int16:
      return store(to, std::int32_t{load<std::int16_t>(from)});
    default:
      return store(to, std::int32_t{load<std::uint16_t>(from)});
  }
}

}  // namespace

// ---- the form

Status ParquetForm::add(const Field& field, Column column) {
  column.path.push_back(field.name);
  column.definition_max += field.nullable ? 1 : 0;
  const Repetition repetition = field.nullable ? optional : required;
  ++elements_count_;
  Struct element(elements_);
  if (field.type == Type::fixed_list) {
    element.number(3, repetition);
    element.text(4, field.name);
    element.number(5, 1);
    element.number(6, 3);  // LIST
    element.end();
    Struct list(elements_);
    list.number(3, repeated);
    list.text(4, "list");
    list.number(5, 1);
    list.end();
    ++elements_count_;
    column.path.emplace_back("list");
    column.list_sizes.push_back(static_cast<std::uint32_t>(field.width));
    column.row_values *= static_cast<std::uint64_t>(field.width);
    ++column.definition_max;
    Field child = field.children.at(0);
    child.name = "element";  // as the format wants it; the Arrow schema has the list's own name
    return add(child, std::move(column));
  }
  const std::optional<Stored> stored = field.dictionary.empty() ? stored_of(field) : std::nullopt;
  if (!stored)
    return fail(Error::unsupported, "column '{}' has the type {}, for which Parquet files have no form here",
                column.path.front(), describe(field));
  if (stored->physical == byte_array && column.row_values != 1)
    return fail(Error::unsupported, "column '{}' has lists of the type {}, for which Parquet files have no form here",
                column.path.front(), describe(field));
  column.value_bytes = value_bytes_of(field);
  if (stored->physical == byte_array)
    column.value_bytes = field.type == Type::utf8 || field.type == Type::binary ? 4u : 8u;  // of an offset
  column.stored_bytes = stored->bytes;
  column.physical = stored->physical;
  column.type = field.type;
  element.number(1, stored->physical);
  if (stored->physical == fixed) element.number(2, static_cast<std::int32_t>(stored->bytes));
  element.number(3, repetition);
  element.text(4, field.name);
  if (stored->converted >= 0) element.number(6, stored->converted);
  if (is_reversed(field.type)) {
    element.number(7, field.scale);
    element.number(8, field.precision);
  }
  put_logical(element, field);
  element.end();
  columns_.push_back(std::move(column));
  return {};
}

Result<std::shared_ptr<const ParquetForm>> ParquetForm::make(const Schema& schema, std::vector<std::uint32_t> ordered) {
  auto made = std::make_shared<ParquetForm>();
  made->ordered_ = std::move(ordered);
  Struct root(made->elements_);
  ++made->elements_count_;
  root.text(4, "schema");
  root.number(5, static_cast<std::int32_t>(schema.fields.size()));
  root.end();
  for (const Field& field : schema.fields) OFP_TRY(made->add(field, {}));
  OFP_ASSIGN(const std::vector<std::byte> message, schema_message(schema));
  made->arrow_schema_ = base64_of(message);
  return made;
}

// ---- a file

Status ParquetFile::put(Bytes bytes) {
  bytes_ += bytes.size();
  return put_(bytes);
}

Status ParquetFile::begin() { return bytes_ == 0 ? put(bytes_of(magic)) : Status{}; }

Status ParquetFile::put_values(const ParquetForm::Column& column, std::uint64_t values, const std::byte* from) {
  if (column.stored_bytes == column.value_bytes && !is_reversed(column.type))
    return put({from, values * column.value_bytes});
  return put_changed(column, values, from);
}

namespace {

// The value of this number.
Bytes text_at(const ParquetForm::Column& column, const ParquetFile::Values& from, std::uint64_t number) noexcept {
  const std::byte* const at = from.values + number * column.value_bytes;
  const bool is_short = column.value_bytes == 4;
  const std::uint64_t begin = is_short ? load<std::uint32_t>(at) : load<std::uint64_t>(at);
  const std::uint64_t end =
      is_short ? load<std::uint32_t>(at + column.value_bytes) : load<std::uint64_t>(at + column.value_bytes);
  return {from.text + begin, end - begin};
}

std::uint64_t text_bytes_in(const ParquetForm::Column& column, const ParquetFile::Values& from,
                            std::uint64_t values) noexcept {
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < values; ++i) bytes += sizeof(std::uint32_t) + text_at(column, from, i).size();
  return bytes;
}

}  // namespace

Status ParquetFile::put_texts(const ParquetForm::Column& column, std::uint64_t values, const Values& from) {
  std::vector<std::byte> some;
  for (std::uint64_t i = 0; i < values; ++i) {
    const Bytes value = text_at(column, from, i);
    const auto length = static_cast<std::uint32_t>(value.size());
    put_bytes(some, std::as_bytes(std::span(&length, 1)));
    put_bytes(some, value);
    if (some.size() < put_at_once_bytes && i + 1 < values) continue;
    OFP_TRY(put(some));
    some.clear();
  }
  return {};
}

Status ParquetFile::put_changed(const ParquetForm::Column& column, std::uint64_t values, const std::byte* from) {
  std::array<std::byte, put_at_once_bytes> changed{};
  while (values > 0) {
    const std::uint64_t some = std::min<std::uint64_t>(values, changed.size() / column.stored_bytes);
    for (std::uint64_t i = 0; i < some; ++i)
      change(column.type, from + i * column.value_bytes, changed.data() + i * column.stored_bytes);
    OFP_TRY(put(Bytes(changed).first(some * column.stored_bytes)));
    from += some * column.value_bytes;
    values -= some;
  }
  return {};
}

Status ParquetFile::add_group(std::uint64_t rows, std::span<const Values> columns) {
  OFP_TRY(begin());
  const std::uint64_t group_at = bytes_;
  std::vector<std::byte> chunks, levels, head;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const ParquetForm::Column& column = form_->columns_[i];
    const std::uint64_t values = rows * column.row_values, at = bytes_;
    levels.clear();
    if (!column.list_sizes.empty()) put_repetition_levels(levels, rows, column);
    if (column.definition_max > 0) put_same_levels(levels, values, column.definition_max);
    const bool is_text = column.physical == byte_array;
    const std::uint64_t page_size =
        levels.size() + (is_text ? text_bytes_in(column, columns[i], values) : values * column.stored_bytes);
    constexpr std::uint64_t page_size_max = std::numeric_limits<std::int32_t>::max();
    if (page_size > page_size_max)
      return fail(Error::too_large, "column '{}' has {} bytes in a page, at most {} are possible", column.path.front(),
                  page_size, page_size_max);
    head.clear();
    Struct page(head);
    page.number(1, 0);  // a data page
    page.number(2, static_cast<std::int32_t>(page_size));
    page.number(3, static_cast<std::int32_t>(page_size));
    Struct data = page.structure(5);
    data.number(1, static_cast<std::int32_t>(values));
    data.number(2, plain);
    data.number(3, rle);
    data.number(4, rle);
    data.end();
    page.end();
    OFP_TRY(put(head));
    OFP_TRY(put(levels));
    OFP_TRY(is_text ? put_texts(column, values, columns[i]) : put_values(column, values, columns[i].values));

    Struct chunk(chunks);
    chunk.long_number(2, at);
    Struct about = chunk.structure(3);
    about.number(1, column.physical);
    std::vector<std::byte>& encodings = about.list(2, Kind::i32, 2);
    put_zigzag(encodings, plain);
    put_zigzag(encodings, rle);
    std::vector<std::byte>& path = about.list(3, Kind::binary, column.path.size());
    for (const std::string& name : column.path) put_text(path, name);
    about.number(4, 0);  // uncompressed
    about.long_number(5, values);
    about.long_number(6, bytes_ - at);
    about.long_number(7, bytes_ - at);
    about.long_number(9, at);
    if (std::ranges::find(form_->ordered_, i) != form_->ordered_.end()) {
      const Bounds bounds = bounds_of(column.type, columns[i].values, values);
      Struct statistics = about.structure(12);
      statistics.long_number(3, 0);  // nulls
      statistics.bytes(5, Bytes(bounds.largest).first(column.stored_bytes));
      statistics.bytes(6, Bytes(bounds.least).first(column.stored_bytes));
      statistics.end();
    }
    about.end();
    chunk.end();
  }
  Struct group(groups_);
  put_bytes(group.list(1, Kind::structure, columns.size()), chunks);
  group.long_number(2, bytes_ - group_at);
  group.long_number(3, rows);
  std::vector<std::byte>& order = group.list(4, Kind::structure, form_->ordered_.size());
  for (const std::uint32_t column : form_->ordered_) {
    Struct sorted(order);
    sorted.number(1, static_cast<std::int32_t>(column));
    sorted.flag(2, false);  // descending
    sorted.flag(3, false);  // nulls first
    sorted.end();
  }
  group.long_number(5, group_at);
  group.long_number(6, bytes_ - group_at);
  group.end();
  ++groups_count_;
  rows_ += rows;
  return {};
}

Status ParquetFile::end() {
  OFP_TRY(begin());
  std::vector<std::byte> footer;
  Struct file(footer);
  file.number(1, 2);  // the format's version
  put_bytes(file.list(2, Kind::structure, form_->elements_count_), form_->elements_);
  file.long_number(3, rows_);
  put_bytes(file.list(4, Kind::structure, groups_count_), groups_);
  std::vector<std::byte>& pairs = file.list(5, Kind::structure, 1);
  Struct pair(pairs);
  pair.text(1, "ARROW:schema");
  pair.text(2, form_->arrow_schema_);
  pair.end();
  file.text(6, "offpath");
  std::vector<std::byte>& orders = file.list(7, Kind::structure, form_->columns_.size());
  for (std::size_t i = 0; i < form_->columns_.size(); ++i) {
    Struct order(orders);
    order.empty_structure(1);  // each type's own
    order.end();
  }
  file.end();
  const auto bytes = static_cast<std::uint32_t>(footer.size());
  OFP_TRY(put(footer));
  OFP_TRY(put(std::as_bytes(std::span(&bytes, 1))));
  return put(bytes_of(magic));
}

}  // namespace offpath::frame
