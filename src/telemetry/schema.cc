#include "telemetry/schema.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "base/hash/siphash.h"
#include "base/text.h"
#include "wire/cursor.h"

namespace offpath::exchange {

namespace {

constexpr std::array<std::uint8_t, 16> id_key{'o', 'f', 'f', 'p', 'a', 't', 'h', ' ',
                                              's', 'c', 'h', 'e', 'm', 'a', ' ', '1'};
constexpr std::size_t field_bytes_min = 2 + 1 + 1 + 2 + 2;

// UTF-8 beyond ASCII is checked by the code that prints it.
Status check_text(std::string_view what, std::string_view text, std::size_t least, std::size_t most) {
  if (text.size() < least || text.size() > most)
    return fail(Error::invalid, "{} has {} bytes, {} to {} are allowed", what, text.size(), least, most);
  if (std::ranges::any_of(text, is_control)) return fail(Error::invalid, "{} has control characters", what);
  return {};
}

}  // namespace

std::string_view type_name(FieldType type) noexcept {
  constexpr std::string_view names[] = {"u64", "i64", "f64"};
  return names[static_cast<std::size_t>(type)];
}

std::string_view kind_name(FieldKind kind) noexcept { return kind == FieldKind::gauge ? "gauge" : "counter"; }

std::size_t Schema::find(std::string_view field) const noexcept {
  return static_cast<std::size_t>(std::ranges::find(fields, field, &Field::name) - fields.begin());
}

SchemaId Schema::id() const {
  std::vector<std::byte> bytes;
  encode(*this, bytes);
  const SchemaId id = ofp_siphash64(id_key.data(), bytes.data(), bytes.size());
  return id == 0 ? 1 : id;
}

Status check(const Schema& schema) {
  OFP_TRY(check_text("the schema's name", schema.name, 1, name_bytes_max));
  if (schema.fields.empty() || schema.fields.size() > fields_max)
    return fail(Error::invalid, "schema '{}' has {} fields, 1 to {} are allowed", schema.name, schema.fields.size(),
                fields_max);
  std::unordered_set<std::string_view> names;
  for (const Field& field : schema.fields) {
    OFP_TRY(check_text("a field's name", field.name, 1, name_bytes_max));
    OFP_TRY(check_text("a field's unit", field.unit, 0, unit_bytes_max));
    OFP_TRY(check_text("a field's description", field.description, 0, description_bytes_max));
    if (!names.insert(field.name).second)
      return fail(Error::invalid, "schema '{}' has two fields with the name '{}'", schema.name, field.name);
  }
  return {};
}

void encode(const Schema& schema, std::vector<std::byte>& to) {
  wire::Writer writer(to);
  writer.put_text(schema.name);
  writer.put(static_cast<std::uint32_t>(schema.fields.size()));
  for (const Field& field : schema.fields) {
    writer.put_text(field.name);
    writer.put(field.type);
    writer.put(field.kind);
    writer.put_text(field.unit);
    writer.put_text(field.description);
  }
}

Result<Schema> decode_schema(Bytes bytes) {
  wire::Reader reader(bytes);
  Schema schema;
  schema.name = reader.take_text();
  const auto count = reader.take<std::uint32_t>();
  if (count > fields_max || count > reader.left() / field_bytes_min)
    return fail(Error::protocol, "a schema of {} fields in {} bytes", count, bytes.size());
  schema.fields.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    Field& field = schema.fields.emplace_back();
    field.name = reader.take_text();
    const auto type = reader.take<std::uint8_t>(), kind = reader.take<std::uint8_t>();
    field.unit = reader.take_text();
    field.description = reader.take_text();
    if (type > static_cast<std::uint8_t>(FieldType::f64) || kind > static_cast<std::uint8_t>(FieldKind::counter))
      return fail(Error::protocol, "field {} of a schema has type {} and kind {}", i, type, kind);
    field.type = static_cast<FieldType>(type);
    field.kind = static_cast<FieldKind>(kind);
  }
  if (!reader.done()) return fail(Error::protocol, "{} bytes are not a schema of {} fields", bytes.size(), count);
  if (auto fits = check(schema); !fits) return fail(Error::protocol, "{}", fits.error().message);
  return schema;
}

}  // namespace offpath::exchange
