#include "agent/telemetry/sample_records.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "base/log.h"

namespace offpath::agent {

namespace {

using exchange::FieldType;

// The value's 64 bits as another type; none if it cannot be represented.
std::optional<std::uint64_t> converted(const exchange::Values& values, std::size_t i, FieldType from, FieldType to) {
  if (from == to) return values.bits(i);
  if (to == FieldType::f64) return std::bit_cast<std::uint64_t>(values.as_real(i, from));
  if (from == FieldType::f64) {
    const double real = values.f64(i);
    constexpr double beyond_i64 = 9223372036854775808.0, beyond_u64 = 18446744073709551616.0;
    if (to == FieldType::i64)
      return real >= -beyond_i64 && real < beyond_i64
                 ? std::optional(std::bit_cast<std::uint64_t>(static_cast<std::int64_t>(real)))
                 : std::nullopt;
    return real >= 0 && real < beyond_u64 ? std::optional(static_cast<std::uint64_t>(real)) : std::nullopt;
  }
  // One type is signed and the other is not: values that both can represent have the highest bit clear.
  return values.bits(i) >> 63 == 0 ? std::optional(values.bits(i)) : std::nullopt;
}

}  // namespace

void make_record(const exchange::Schema& wanted, const exchange::Schema& schema, const exchange::Sample& sample,
                 std::vector<std::byte>& record) {
  const std::size_t fields = wanted.fields.size(), words = (fields + 63) / 64;
  record.assign((fields + words) * 8, std::byte{0});
  std::vector<std::uint64_t> present(words);
  for (std::size_t i = 0; i < fields; ++i) {
    const std::size_t at = schema.find(wanted.fields[i].name);
    if (at == schema.fields.size() || !sample.values.has(at)) continue;
    const auto bits = converted(sample.values, at, schema.fields[at].type, wanted.fields[i].type);
    if (!bits) continue;
    store(record.data() + 8 * i, *bits);
    present[i / 64] |= 1ull << i % 64;
  }
  for (std::size_t i = 0; i < words; ++i) store(record.data() + 8 * (fields + i), present[i]);
}

SampleRecords::SampleRecords(const std::vector<exchange::ExchangeSettings>& exchanges, TimeNs interval_ns,
                             SampleVisit visit, exchange::ExchangeService& service, TimeNs now)
    : interval_ns_(interval_ns), visit_(std::move(visit)), service_(service) {
  for (const exchange::ExchangeSettings& each : exchanges) {
    if (!each.source.empty()) records_.push_back({each.options.name, each.source, each.options.schema});
  }
  next_at_ = records_.empty() ? never : now;
}

bool SampleRecords::poll(TimeNs now) {
  if (now < next_at_) return false;
  next_at_ = deadline_after(now, interval_ns_);
  for (Record& record : records_) {
    bool found = false;  // the first one: hosts in the order of the configuration, then this machine
    visit_([&](const exchange::Schema& schema, const exchange::Sample& sample, TimeNs made_at) {
      if (found || schema.name != record.source) return;
      found = true;
      give(record, schema, sample, made_at);
    });
  }
  return true;
}

void SampleRecords::give(Record& record, const exchange::Schema& schema, const exchange::Sample& sample,
                         TimeNs made_at) {
  if (record.sequence == sample.sequence && record.made_at == made_at) return;
  record.sequence = sample.sequence;
  record.made_at = made_at;
  if (std::exchange(record.warned_for, sample.schema) != sample.schema) {
    for (const exchange::Field& field : record.schema->fields) {
      if (schema.find(field.name) == schema.fields.size())
        log(LogLevel::warning, "exchange {}: samples of {} have no field {}; it is missing in records", record.exchange,
            record.source, field.name);
    }
  }
  make_record(*record.schema, schema, sample, bytes_);
  service_.set_record(record.exchange, bytes_, made_at);
}

}  // namespace offpath::agent
