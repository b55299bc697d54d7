// Particles for tests and benchmarks: frames of the 37-byte record, or of a smaller one, whose values follow from
// identifier and step, so that any row can be checked.
#pragma once

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "sift/split/row_form.h"

namespace offpath::sift {

// id u64; x y z vx vy vz q f32; type u8
inline frame::Schema particle_schema() {
  using frame::Type;
  frame::Schema schema;
  schema.fields.push_back({.name = "id", .type = Type::uint64});
  for (const char* name : {"x", "y", "z", "vx", "vy", "vz", "q"})
    schema.fields.push_back({.name = name, .type = Type::float32});
  schema.fields.push_back({.name = "type", .type = Type::uint8});
  return schema;
}

// Every byte of a row but its identifier: of column `column`, whose value has `width` bytes.
inline std::byte byte_of(std::uint64_t id, std::int64_t step, std::size_t column, std::size_t at) {
  std::uint64_t mixed =
      id * 0x9E3779B97F4A7C15 + static_cast<std::uint64_t>(step) * 0xBF58476D1CE4E5B9 + column * 31 + at;
  mixed ^= mixed >> 29;
  return static_cast<std::byte>(mixed * 0x94D049BB133111EB >> 56);
}

// The identifier with that number: the number itself, or for long identifiers bytes in the order of unsigned numbers
// behind a common prefix. Text has another order and several lengths.
inline std::string value_of_id(const RowForm& form, std::uint64_t id) {
  const KeyForm& key = form.key();
  if (key.is_text()) return id == 0 ? std::string() : fmt::format("particle-{:x}", id);
  std::string value(key.value_bytes(), 0);
  if (key.kind() == KeyForm::Kind::long_number)
    std::memset(value.data(), static_cast<std::int64_t>(id) < 0 ? 0xFF : 0, value.size());
  if (key.kind() != KeyForm::Kind::long_bytes) {
    std::memcpy(value.data(), &id, std::min(value.size(), sizeof id));
    return value;
  }
  std::memset(value.data(), 'p', value.size());
  const std::uint64_t highest_first = __builtin_bswap64(id);
  std::memcpy(value.data() + value.size() - sizeof id, &highest_first, sizeof id);
  return value;
}
inline std::uint64_t id_of_value(const RowForm& form, Bytes value) {
  const KeyForm& key = form.key();
  std::uint64_t id = 0;
  if (key.is_text()) {
    if (!value.empty()) id = std::stoull(std::string(text_of(value.subspan(9))), nullptr, 16);
  } else if (key.kind() == KeyForm::Kind::long_bytes) {
    id = head_of(value.subspan(value.size() - sizeof id));
  } else {
    std::memcpy(&id, value.data(), std::min(value.size(), sizeof id));
  }
  return id;
}
// Bytes in the order of the identifiers.
inline std::string ordered_id(const RowForm& form, std::uint64_t id) {
  const std::string value = value_of_id(form, id);
  std::string ordered = value;
  if (!form.key().is_long()) {
    const std::uint64_t highest_first = __builtin_bswap64(form.key().key_of(id));
    return {reinterpret_cast<const char*>(&highest_first), sizeof highest_first};
  }
  if (!form.key().is_compared_as_it_lies())
    form.key().order(bytes_of(value).data(), reinterpret_cast<std::byte*>(ordered.data()));
  return ordered;
}

inline FramePtr particle_frame(const RowForm& form, std::span<const std::uint64_t> ids, std::int64_t step,
                               const FrameMemory& memory) {
  std::uint64_t text_bytes = 0;
  for (const std::uint64_t id : ids) text_bytes += form.key().is_text() ? value_of_id(form, id).size() : 0;
  auto made = form.make_frame(ids.size(), memory, text_bytes);
  OFP_ASSERT(made.has_value());
  TextTarget text{made->columns[form.key_column()], made->text};
  for (std::size_t column = 0; column < form.widths().size(); ++column) {
    const std::uint32_t width = form.widths()[column];
    for (std::size_t row = 0; row < ids.size(); ++row) {
      std::byte* const to = made->columns[column] + row * width;
      if (column == form.key_column() && form.key().is_text())
        text.add(bytes_of(value_of_id(form, ids[row])), width);
      else if (column == form.key_column() && form.key().is_long())
        std::memcpy(to, value_of_id(form, ids[row]).data(), width);
      else if (column == form.key_column())
        std::memcpy(to, &ids[row], width);
      else
        for (std::size_t at = 0; at < width; ++at) to[at] = byte_of(ids[row], step, column, at);
    }
  }
  return made->frame;
}

// "" if the row's values match its identifier and step.
inline std::string wrong_row(const RowForm& form, const RowsView& view, std::uint64_t row, std::int64_t step,
                             std::size_t skip_columns = 0) {
  const std::uint64_t id = id_of_value(form, view.value_of_id(row));
  for (std::size_t column = 0; column < form.widths().size(); ++column) {
    if (column == form.key_column()) continue;
    const Column& values = view.columns[column + skip_columns];
    for (std::size_t at = 0; at < values.value_bytes; ++at)
      if (values.values[row * values.value_bytes + at] != byte_of(id, step, column, at))
        return fmt::format("row {} (identifier {}, step {}) has another value in column {}", row, id, step, column);
  }
  return "";
}

}  // namespace offpath::sift
