// A schema as plain values: read from the Arrow C data interface, sent between processes as a few bytes, written as an
// IPC schema message (template.h).
//
// Read this first in src/frame (the columns), then layout.h (the nodes and buffers they are stored in), flatten.h
// (where one batch's buffers lie), gather.h (views and runs), template.h (a stream's constant bytes), plan.h (places in
// a frame), adjust.h (the steps that change bytes), c_arrays.h (the same as C structs), parse.h (a frame read back),
// parquet.h (rows as a Parquet file).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "frame/c_data.h"

namespace offpath::frame {

// The numbers cross processes (encode): new types go at the end.
enum class Type : std::uint8_t {
  null,
  boolean,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float16,
  float32,
  float64,
  decimal32,
  decimal64,
  decimal128,
  decimal256,
  date32,
  date64,
  time32,
  time64,
  timestamp,
  duration,
  interval_months,
  interval_day_time,
  interval_month_day_nano,
  fixed_binary,
  binary,
  utf8,
  large_binary,
  large_utf8,
  list,
  large_list,
  fixed_list,
  structure,
  map,
  sparse_union,
  dense_union,
};
inline constexpr int types_count = static_cast<int>(Type::dense_union) + 1;

[[nodiscard]] constexpr bool is_union(Type type) noexcept {
  return type == Type::sparse_union || type == Type::dense_union;
}

enum class Unit : std::uint8_t { second, millisecond, microsecond, nanosecond };

struct KeyValue {
  std::string key{};
  std::string value{};
  bool operator==(const KeyValue&) const = default;
};

struct Field {
  std::string name{};
  Type type = Type::null;    // of a dictionary column: the type of its indices
  Unit unit = Unit::second;  // time32, time64, timestamp, duration
  bool nullable = true;
  bool keys_sorted = false;    // map
  bool ordered = false;        // dictionary
  std::int32_t width = 0;      // fixed_binary: bytes in a value; fixed_list: values in a list
  std::int32_t precision = 0;  // decimals
  std::int32_t scale = 0;      // decimals
  std::string timezone{};      // timestamp; empty: naive
  std::vector<KeyValue> metadata{};
  std::vector<Field> children{};
  std::vector<std::int8_t> type_codes{};  // union: the number that stands for each child, 0 to 127
  std::vector<Field> dictionary{};        // none, or one: the type of the values the indices stand for

  // How a program gives the values where that is not how they are stored (gather.h). Both stay in that program.
  bool view = false;                     // of bytes or of a list, whose values lie in any order
  std::vector<std::uint8_t> run_ends{};  // bytes of a run's end; the outermost first, where runs have runs

  bool operator==(const Field&) const = default;
};

struct Schema {
  std::vector<Field> fields{};
  std::vector<KeyValue> metadata{};

  bool operator==(const Schema&) const = default;
};

// Bounds of a schema: they limit the memory that another process can make this one use.
inline constexpr int depth_max = 32;                          // nesting of fields
inline constexpr std::size_t fields_max = 4096;               // in the whole tree
inline constexpr std::size_t type_codes_max = 128;            // of a union
inline constexpr std::size_t name_bytes_max = 4096;           // of a field or a time zone
inline constexpr std::size_t metadata_entries_max = 1024;     // of one field
inline constexpr std::size_t schema_bytes_max = 1024 * 1024;  // encoded

[[nodiscard]] std::string_view type_name(Type type) noexcept;

// The type much as Arrow's libraries print it, for errors: "fixed_size_list<item: float64>[3]" (they say double).
[[nodiscard]] std::string describe(const Field& field);

// Bytes of one value of a fixed-width type; 0 for every other type, boolean included.
[[nodiscard]] std::uint32_t value_bytes_of(const Field& field) noexcept;

// Checks that the schema can be stored: children where they belong, widths and precisions in range, within the bounds
// above. Everything below returns only schemas that pass.
[[nodiscard]] Status check(const Schema& schema);

// The struct schema of a record batch, as every Arrow library exports it. Views and runs become the types that they are
// stored as; their fields remember how they are given. Other types are Error::unsupported.
[[nodiscard]] Result<Schema> import_schema(const ArrowSchema& schema);

// The bytes a schema crosses processes in; equal schemas have equal bytes.
//
//   schema    u32 magic "OFPS" | u16 version | u16 zero | u32 bytes in all | metadata | u16 fields | field...
//   field     u8 type | u8 flags | u8 unit | u8 zero | i32 width | i32 precision | i32 scale
//             | text name | text timezone | metadata | u16 children | field... | i8 code of each child of a union
//             | field if flags has dictionary
//   metadata  u16 entries | { u32 bytes, key | u32 bytes, value }...
//   text      u16 bytes | bytes
[[nodiscard]] std::vector<std::byte> encode(const Schema& schema);
[[nodiscard]] Result<Schema> decode(Bytes bytes);  // any bytes whatsoever

}  // namespace offpath::frame
