#include "wire/areas/exchange_area.h"

#include "wire/cursor.h"

namespace offpath::wire {

namespace {

constexpr std::uint32_t rows_max = 1 << 17;

void put_fields(Writer& writer, const std::vector<ExchangeField>& fields) {
  writer.put(static_cast<std::uint32_t>(fields.size()));
  for (const ExchangeField& each : fields) {
    writer.put_text(each.name);
    writer.put(each.type);
    writer.put_text(each.unit);
    writer.put_text(each.description);
  }
}

bool take_fields(Reader& reader, std::vector<ExchangeField>& fields) {
  const auto count = reader.take<std::uint32_t>();
  if (count > rows_max) return false;
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    ExchangeField& field = fields.emplace_back();
    field.name = reader.take_text();
    field.type = reader.take<char>();
    field.unit = reader.take_text();
    field.description = reader.take_text();
    if (field.type != 'u' && field.type != 'i' && field.type != 'f') return false;
  }
  return reader.ok();
}

void put_texts(Writer& writer, const std::vector<std::string>& texts) {
  writer.put(static_cast<std::uint32_t>(texts.size()));
  for (const std::string& each : texts) writer.put_text(each);
}

bool take_texts(Reader& reader, std::vector<std::string>& texts) {
  const auto count = reader.take<std::uint32_t>();
  if (count > rows_max) return false;
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) texts.emplace_back(reader.take_text());
  return reader.ok();
}

}  // namespace

void encode_fields(const std::vector<ExchangeField>& fields, std::vector<std::byte>& to) {
  Writer writer(to);
  put_fields(writer, fields);
}

Result<std::vector<ExchangeField>> decode_fields(Bytes bytes) {
  Reader reader(bytes);
  std::vector<ExchangeField> fields;
  if (!take_fields(reader, fields) || !reader.done())
    return fail(Error::protocol, "the fields of a record, {} bytes, are malformed", bytes.size());
  return fields;
}

void encode_description(const ExchangeDescription& description, std::vector<std::byte>& to) {
  Writer writer(to);
  writer.put(description.self);
  writer.put(description.tree);
  writer.put(description.record_bytes);
  writer.put(description.interval_ns);
  writer.put(description.deadline_ns);
  writer.put(description.grant_total);
  writer.put_text(description.topology);
  put_texts(writer, description.members);
  put_fields(writer, description.fields);
  put_texts(writer, description.reductions);
}

Result<ExchangeDescription> decode_description(Bytes bytes) {
  Reader reader(bytes);
  ExchangeDescription told;
  told.self = reader.take<std::uint32_t>();
  told.tree = reader.take<std::uint64_t>();
  told.record_bytes = reader.take<std::uint64_t>();
  told.interval_ns = reader.take<std::int64_t>();
  told.deadline_ns = reader.take<std::int64_t>();
  told.grant_total = reader.take<std::uint64_t>();
  told.topology = reader.take_text();
  if (!take_texts(reader, told.members) || !take_fields(reader, told.fields) || !take_texts(reader, told.reductions) ||
      !reader.done())
    return fail(Error::protocol, "the description of an exchange, {} bytes, is malformed", bytes.size());
  return told;
}

}  // namespace offpath::wire
