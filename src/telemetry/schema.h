// The meaning of a sample's numbers. A schema is sent once; samples and records name it by its id, which is computed
// from its content, so equal schemas of different machines have one id. Read this first, then sample.h; sampling.h
// (hosts), gauges.h (programs) and alarm.h use them.
//
//   schema   u16 name | u32 fields | of each: u16 name, u8 type, u8 kind, u16 unit, u16 description
//            u16: length, then text
//   id       SipHash-2-4 of these bytes, with the key "offpath schema 1"; never 0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace offpath::exchange {

enum class FieldType : std::uint8_t { u64, i64, f64 };
enum class FieldKind : std::uint8_t { gauge, counter };  // a counter only grows, except when its producer restarts
[[nodiscard]] std::string_view type_name(FieldType type) noexcept;
[[nodiscard]] std::string_view kind_name(FieldKind kind) noexcept;

inline constexpr std::size_t name_bytes_max = 255, unit_bytes_max = 64, description_bytes_max = 1024;
inline constexpr std::size_t fields_max = 4096;

struct Field {
  std::string name;
  FieldType type = FieldType::u64;
  FieldKind kind = FieldKind::gauge;
  std::string unit{};         // bytes, seconds, celsius; empty: a plain count. As in OpenMetrics
  std::string description{};  // one sentence
  bool operator==(const Field&) const = default;
};

using SchemaId = std::uint64_t;

struct Schema {
  std::string name;
  std::vector<Field> fields;

  [[nodiscard]] SchemaId id() const;  // of a schema that check() accepts
  // The index of the field of that name; fields.size() if there is none.
  [[nodiscard]] std::size_t find(std::string_view field) const noexcept;
  bool operator==(const Schema&) const = default;
};

// Checks that names exist, differ, are within their limits, and printable, because they appear in logs and metrics.
[[nodiscard]] Status check(const Schema& schema);

void encode(const Schema& schema, std::vector<std::byte>& to);
// Any malformed input is Error::protocol.
[[nodiscard]] Result<Schema> decode_schema(Bytes bytes);

}  // namespace offpath::exchange
