#include "telemetry/schema.h"

#include <gtest/gtest.h>

#include "telemetry/sample.h"

namespace offpath::exchange {
namespace {

Schema some_schema() {
  return {"host",
          {{"load1", FieldType::f64, FieldKind::gauge, "", "Running and waiting tasks, mean of a minute."},
           {"context_switches", FieldType::u64, FieldKind::counter, "", ""},
           {"temperature", FieldType::i64, FieldKind::gauge, "celsius", ""}}};
}

std::vector<std::byte> encoded(const Schema& schema) {
  std::vector<std::byte> bytes;
  encode(schema, bytes);
  return bytes;
}

TEST(Schema, ComesBackAsItWas) {
  const Schema schema = some_schema();
  EXPECT_EQ(decode_schema(encoded(schema)).value(), schema);
  EXPECT_EQ(schema.find("context_switches"), 1u);
  EXPECT_EQ(schema.find("none"), 3u);
}

// Agents of different versions and processors have to agree on it.
TEST(Schema, ItsIdStaysTheSameFromVersionToVersion) { EXPECT_EQ(some_schema().id(), 0xf22bcd4a2036a0c7ull); }

TEST(Schema, ItsIdDependsOnAllOfIt) {
  const SchemaId id = some_schema().id();
  Schema other = some_schema();
  other.fields[0].type = FieldType::u64;
  EXPECT_NE(other.id(), id);
  other = some_schema();
  other.fields[1].kind = FieldKind::gauge;
  EXPECT_NE(other.id(), id);
  other = some_schema();
  other.fields[2].unit = "kelvin";
  EXPECT_NE(other.id(), id);
  other = some_schema();
  std::swap(other.fields[0], other.fields[1]);
  EXPECT_NE(other.id(), id);
}

TEST(Schema, WhateverWasCutOffIsRefused) {
  const auto whole = encoded(some_schema());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto back = decode_schema(Bytes(whole).first(length));
    ASSERT_FALSE(back) << length;
    EXPECT_EQ(back.error().code, Error::protocol);
  }
  auto longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_schema(longer));
}

TEST(Schema, LimitsHoldOnBothSides) {
  Schema schema = some_schema();
  schema.fields[0].name = std::string(name_bytes_max, 'n');
  EXPECT_TRUE(decode_schema(encoded(schema)));
  schema.fields[0].name += 'n';
  EXPECT_FALSE(decode_schema(encoded(schema)));
  schema = some_schema();
  schema.fields[1].name = schema.fields[0].name;
  EXPECT_NE(check(schema).error().message.find("load1"), std::string::npos);
  schema.fields[1].name = "new\nline";
  EXPECT_FALSE(check(schema));
  schema.fields.clear();
  EXPECT_FALSE(check(schema));
  for (std::size_t i = 0; i <= fields_max; ++i) schema.fields.push_back({fmt::format("f{}", i)});
  EXPECT_FALSE(decode_schema(encoded(schema)));
  schema.fields.pop_back();
  EXPECT_TRUE(decode_schema(encoded(schema)));
}

Sample some_sample(std::size_t count) {
  Sample sample;
  sample.schema = some_schema().id();
  sample.producer = "node17";
  sample.sequence = 41;
  sample.source_ns = 1'700'000'000'000'000'000;
  sample.receive_ns = sample.source_ns - 5;
  sample.values.reset(count);
  for (std::size_t i = 0; i < count; i += 1 + i % 3) sample.values.set(i, std::uint64_t{i} << 40);
  return sample;
}

TEST(Sample, ComesBackAsItWas) {
  for (const std::size_t count : {0u, 1u, 7u, 8u, 9u, 63u, 64u, 65u, 4096u}) {
    const Sample sample = some_sample(count);
    std::vector<std::byte> bytes;
    encode(sample, bytes);
    const auto back = decode_sample(bytes);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(*back, sample);
    for (const std::size_t length : {bytes.size() - 1, bytes.size() / 2, std::size_t{0}})
      EXPECT_FALSE(decode_sample(Bytes(bytes).first(length)));
  }
}

TEST(Sample, AMissingValueIsNotZero) {
  Values values(3);
  EXPECT_EQ(values.missing(), 3u);
  values.set(0, std::uint64_t{0});
  values.set(1, -2.5);
  values.set(2, std::int64_t{-7});
  EXPECT_TRUE(values.has(0));
  EXPECT_EQ(values.missing(), 0u);
  EXPECT_EQ(values.as_real(1, FieldType::f64), -2.5);
  EXPECT_EQ(values.as_real(2, FieldType::i64), -7);
  values.set_missing(1);
  EXPECT_FALSE(values.has(1));
  EXPECT_NE(values, Values(3));
}

TEST(Sample, PresenceBeyondItsValuesIsRefused) {
  Sample sample = some_sample(3);
  std::vector<std::byte> bytes;
  encode(sample, bytes);
  const std::size_t presence = 8 * 4 + 2 + sample.producer.size() + 4;
  bytes[presence] |= std::byte{0x08};
  bytes.resize(bytes.size() + 8);
  EXPECT_FALSE(decode_sample(bytes));
}

TEST(Sample, FitsTheSchemaItNames) {
  EXPECT_TRUE(fits(some_sample(3), some_schema()));
  EXPECT_EQ(fits(some_sample(2), some_schema()).error().code, Error::schema);
  Schema other = some_schema();
  other.name = "other";
  EXPECT_EQ(fits(some_sample(3), other).error().code, Error::schema);
}

}  // namespace
}  // namespace offpath::exchange
