#include "agent/telemetry/sample_records.h"

#include <gtest/gtest.h>

#include <bit>

namespace offpath::agent {
namespace {

using exchange::FieldKind;
using exchange::FieldType;

const exchange::Schema host{"host",
                            {{"load1", FieldType::f64, FieldKind::gauge},
                             {"tasks", FieldType::u64, FieldKind::gauge},
                             {"celsius", FieldType::i64, FieldKind::gauge},
                             {"missing", FieldType::u64, FieldKind::gauge}}};

exchange::Sample sample_of(double load, std::uint64_t tasks, std::int64_t celsius) {
  exchange::Sample sample{.schema = host.id(), .producer = "node17", .sequence = 1};
  sample.values.reset(host.fields.size());
  sample.values.set(0, load);
  sample.values.set(1, tasks);
  sample.values.set(2, celsius);
  return sample;
}

// The record as words: values, then presence bits.
std::vector<std::uint64_t> record_of(const std::vector<exchange::Field>& wanted, const exchange::Sample& sample) {
  std::vector<std::byte> bytes;
  make_record({"record", wanted}, host, sample, bytes);
  std::vector<std::uint64_t> words(bytes.size() / 8);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = load<std::uint64_t>(bytes.data() + 8 * i);
  return words;
}

TEST(SampleRecord, HasTheFieldsThatAreWantedInTheirOrder) {
  const auto words = record_of({{"tasks", FieldType::u64}, {"load1", FieldType::f64}}, sample_of(0.5, 7, -3));
  EXPECT_EQ(words, (std::vector<std::uint64_t>{7, std::bit_cast<std::uint64_t>(0.5), 0b11}));
}

TEST(SampleRecord, WhatTheSampleHasNotIsNotPresent) {
  const auto words = record_of({{"missing", FieldType::u64}, {"unknown", FieldType::u64}, {"tasks", FieldType::u64}},
                               sample_of(0.5, 7, -3));
  EXPECT_EQ(words, (std::vector<std::uint64_t>{0, 0, 7, 0b100}));
}

TEST(SampleRecord, ValuesBecomeTheTypeThatIsWanted) {
  const auto words = record_of(
      {{"tasks", FieldType::f64}, {"tasks", FieldType::i64}, {"celsius", FieldType::f64}, {"load1", FieldType::u64}},
      sample_of(2.75, 7, -3));
  EXPECT_EQ(words, (std::vector<std::uint64_t>{std::bit_cast<std::uint64_t>(7.0), 7, std::bit_cast<std::uint64_t>(-3.0),
                                               2, 0b1111}));
}

TEST(SampleRecord, WhatDoesNotFitTheTypeIsNotPresent) {
  const exchange::Sample sample = sample_of(-1.0, UINT64_MAX, -3);
  EXPECT_EQ(record_of({{"celsius", FieldType::u64}, {"tasks", FieldType::i64}, {"load1", FieldType::u64}}, sample),
            (std::vector<std::uint64_t>(4)));
  EXPECT_EQ(record_of({{"load1", FieldType::i64}}, sample_of(1e30, 0, 0)), (std::vector<std::uint64_t>(2)));
  EXPECT_EQ(record_of({{"load1", FieldType::i64}}, sample_of(-1e18, 0, 0))[1], 1u);
}

TEST(SampleRecord, MoreThan64FieldsHaveMoreWordsOfPresence) {
  const auto words = record_of(std::vector<exchange::Field>(65, {"tasks", FieldType::u64}), sample_of(0, 9, 0));
  ASSERT_EQ(words.size(), 67u);
  EXPECT_EQ(words[64], 9u);
  EXPECT_EQ(words[65], UINT64_MAX);
  EXPECT_EQ(words[66], 1u);
}

}  // namespace
}  // namespace offpath::agent
