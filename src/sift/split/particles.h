// Particles for tests and benchmarks: frames of the 37-byte record, or of a smaller one, whose values follow from
// identifier and step, so that any row can be checked.
#pragma once

#include <random>
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

inline FramePtr particle_frame(const RowForm& form, std::span<const std::uint64_t> ids, std::int64_t step,
                               const FrameMemory& memory) {
  auto made = form.make_frame(ids.size(), memory);
  OFP_ASSERT(made.has_value());
  for (std::size_t column = 0; column < form.widths().size(); ++column) {
    const std::uint32_t width = form.widths()[column];
    for (std::size_t row = 0; row < ids.size(); ++row) {
      std::byte* const to = made->columns[column] + row * width;
      if (column == form.key_column())
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
  std::uint64_t id = 0;
  std::memcpy(&id, view.ids.values + row * view.ids.value_bytes, view.ids.value_bytes);
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
