#include "telemetry/sample.h"

#include <algorithm>

#include "wire/cursor.h"

namespace offpath::exchange {

double Values::as_real(std::size_t i, FieldType type) const noexcept {
  switch (type) {
    case FieldType::u64:
      return static_cast<double>(u64(i));
    case FieldType::i64:
      return static_cast<double>(i64(i));
    case FieldType::f64:
      return f64(i);
  }
  return 0;
}

std::size_t Values::missing() const noexcept {
  std::size_t present = 0;
  for (const std::uint64_t word : present_) present += static_cast<std::size_t>(std::popcount(word));
  return bits_.size() - present;
}

void encode(const Sample& sample, std::vector<std::byte>& to) {
  OFP_ASSERT(sample.producer.size() <= name_bytes_max && sample.values.size() <= fields_max);
  wire::Writer writer(to);
  writer.put(sample.schema);
  writer.put(sample.sequence);
  writer.put(sample.source_ns);
  writer.put(sample.receive_ns);
  writer.put_text(sample.producer);
  const std::size_t count = sample.values.size();
  writer.put(static_cast<std::uint32_t>(count));
  for (std::size_t first = 0; first < count; first += 8) {
    std::uint8_t byte = 0;
    for (std::size_t i = first; i < std::min(first + 8, count); ++i)
      if (sample.values.has(i)) byte = static_cast<std::uint8_t>(byte | 1u << (i - first));
    writer.put(byte);
  }
  for (std::size_t i = 0; i < count; ++i)
    if (sample.values.has(i)) writer.put(sample.values.bits(i));
}

Result<Sample> decode_sample(Bytes bytes) {
  wire::Reader reader(bytes);
  Sample sample;
  sample.schema = reader.take<SchemaId>();
  sample.sequence = reader.take<std::uint64_t>();
  sample.source_ns = reader.take<std::int64_t>();
  sample.receive_ns = reader.take<std::int64_t>();
  sample.producer = reader.take_text();
  const auto count = reader.take<std::uint32_t>();
  if (sample.producer.size() > name_bytes_max || count > fields_max)
    return fail(Error::protocol, "a sample of {} values, its producer's name has {} bytes", count,
                sample.producer.size());
  const Bytes presence = reader.take_bytes(bitmap_bytes(count));
  if (!reader.ok()) return fail(Error::protocol, "{} bytes are not a sample of {} values", bytes.size(), count);
  if (count % 8 != 0 && static_cast<unsigned>(presence.back()) >> count % 8 != 0)
    return fail(Error::protocol, "a sample of {} values has presence bits for more", count);
  sample.values.reset(count);
  for (std::uint32_t i = 0; i < count; ++i)
    if ((static_cast<unsigned>(presence[i / 8]) >> i % 8 & 1) != 0)
      sample.values.set_bits(i, reader.take<std::uint64_t>());
  if (!reader.done()) return fail(Error::protocol, "{} bytes are not a sample of {} values", bytes.size(), count);
  return sample;
}

Status fits(const Sample& sample, const Schema& schema) {
  if (const SchemaId id = schema.id(); sample.schema != id)
    return fail(Error::schema, "a sample of schema {:016x}, but '{}' is {:016x}", sample.schema, schema.name, id);
  if (sample.values.size() != schema.fields.size())
    return fail(Error::schema, "a sample of {} values, but schema '{}' has {}", sample.values.size(), schema.name,
                schema.fields.size());
  return {};
}

}  // namespace offpath::exchange
