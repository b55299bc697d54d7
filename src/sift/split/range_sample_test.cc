#include "sift/split/range_sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "sift/split/row_form.h"
#include "wire/limits.h"

namespace offpath::sift {
namespace {

using frame::Type;
using ::testing::AllOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

// The settings of the text that is made of rows with these identifiers.
template <class Value>
Settings sampled(Type type, const std::vector<Value>& values, const std::string& options = "&fanout=4") {
  const std::string text = "sift:/t?key=k&by=range&ranges=sample" + options;
  const Settings settings = parse_settings(text).value();
  EXPECT_TRUE(settings.samples_ranges);
  frame::Schema schema;
  schema.fields.push_back({.name = "k", .type = type});
  if (type == Type::fixed_binary) schema.fields[0].width = sizeof(Value);
  const FrameMemory memory{BufferCache::make({.huge_pages = false}), 7};
  const auto made = RowForm::make(schema, settings.key_rule()).value()->make_frame(values.size(), memory).value();
  if (!values.empty()) std::memcpy(made.columns[0], values.data(), values.size() * sizeof(Value));
  const auto with = with_sampled_ranges(text, settings, {made.frame->buffer.data(), made.frame->bytes});
  EXPECT_TRUE(with) << with.error().message;
  if (with->empty()) return {};
  EXPECT_LE(with->size(), wire::pool_bytes_max);
  const auto parsed = parse_settings(*with);
  EXPECT_TRUE(parsed) << parsed.error().message;
  EXPECT_FALSE(parsed->samples_ranges);
  return *parsed;
}

// How many of the values are in each range.
template <class Value>
std::vector<std::size_t> counted(Type type, const std::vector<Value>& values, const Settings& settings) {
  const KeyForm form = KeyForm::make({.name = "k", .type = type}, sizeof(Value), settings.key_rule()).value();
  std::vector<std::size_t> counts(settings.ranges.size() + 1);
  for (const Value& value : values) ++counts[form.place_of(form.key_of(reinterpret_cast<const std::byte*>(&value)))];
  return counts;
}

TEST(RangeSample, EachRangeHasAboutAsManyRows) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  std::vector<double> floats(100'000);
  for (double& each : floats) each = normal(random);
  std::vector<std::int32_t> integers(100'000);
  for (std::int32_t& each : integers) each = static_cast<std::int32_t>(random() % 2'000'000) - 1'000'000;
  for (const std::size_t count : counted(Type::float64, floats, sampled(Type::float64, floats)))
    EXPECT_THAT(count, AllOf(Ge(22'000u), Le(28'000u)));
  const Settings of_integers = sampled(Type::int32, integers, "&fanout=16");
  EXPECT_EQ(of_integers.ranges.size(), 15u);
  for (const std::size_t count : counted(Type::int32, integers, of_integers))
    EXPECT_THAT(count, AllOf(Ge(4'500u), Le(8'500u)));
}

TEST(RangeSample, ValuesOfEveryTypeAreWrittenAsRangesAreRead) {
  EXPECT_THAT(sampled<std::int8_t>(Type::int8, {-128, -3, 4, 127}).ranges, ::testing::ElementsAre("-3", "4", "127"));
  EXPECT_THAT(sampled<std::int64_t>(Type::timestamp, {INT64_MIN, -1, 5, INT64_MAX}).ranges,
              ::testing::ElementsAre("-1", "5", "9223372036854775807"));
  EXPECT_THAT(sampled<float>(Type::float32, {-INFINITY, -0.0F, 1.5e20F, NAN}).ranges,
              ::testing::ElementsAre("0", "1.5e+20", "nan"));
  using Three = std::array<std::uint8_t, 3>;
  EXPECT_THAT(sampled<Three>(Type::fixed_binary, {Three{9, 0, 1}, Three{0, 0, 1}, Three{255, 0, 1}}).ranges,
              ::testing::ElementsAre("090001", "ff0001"));
}

// As much text as ranges need.
TEST(RangeSample, LongIdentifiersMakeRanges) {
  using Sixteen = std::array<std::uint8_t, 16>;
  const Sixteen least{}, middle{7, 0, 0, 0, 0, 0, 0, 0, 9}, highest{255};
  EXPECT_THAT(sampled<Sixteen>(Type::fixed_binary, {middle, highest, least}).ranges,
              ::testing::ElementsAre("07000000000000000900000000000000", "ff000000000000000000000000000000"));
  for (const std::size_t length : {std::size_t{0}, std::size_t{12}, std::size_t{1024}}) {
    const std::string text = "sift:/t?key=k&by=range&ranges=sample&fanout=64";
    frame::Schema schema;
    schema.fields.push_back({.name = "k", .type = Type::utf8});
    const FrameMemory memory{BufferCache::make({.huge_pages = false}), 7};
    constexpr std::uint64_t rows = 300;
    const auto form = RowForm::make(schema, parse_settings(text)->key_rule()).value();
    const RowForm::Made made = form->make_frame(rows, memory, rows * length).value();
    TextTarget target{made.columns[0], made.text};
    for (std::uint64_t row = 0; row < rows; ++row) {
      std::string value(length, 'x');
      if (length > 0) value.replace(0, 8, fmt::format("{:08}", row));
      target.add(bytes_of(value), 4);
    }
    const auto with =
        with_sampled_ranges(text, parse_settings(text).value(), {made.frame->buffer.data(), made.frame->bytes});
    ASSERT_TRUE(with) << with.error().message;
    const auto parsed = parse_settings(*with);
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_LE(with->size(), wire::pool_bytes_max);
    EXPECT_THAT(parsed->ranges.size(), AllOf(Ge(length == 0 ? 1u : 6u), Le(63u)));
  }
}

// A frame may have millions: their offsets are looked at when its rows are taken.
TEST(RangeSample, OfTextOnlyTheSampledRowsAreLookedAt) {
  const std::string text = "sift:/t?key=k&by=range&ranges=sample&fanout=4";
  const Settings settings = parse_settings(text).value();
  frame::Schema schema;
  schema.fields.push_back({.name = "k", .type = Type::utf8});
  const FrameMemory memory{BufferCache::make({.huge_pages = false}), 7};
  constexpr std::uint64_t rows = 3 * 4096;  // every third one is sampled, from row 1 on
  const RowForm::Made made = RowForm::make(schema, settings.key_rule()).value()->make_frame(rows, memory, rows).value();
  TextTarget target{made.columns[0], made.text};
  for (std::uint64_t row = 0; row < rows; ++row) target.add(bytes_of("abcd").subspan(row * 4 / rows, 1), 4);
  const auto with = [&](std::uint64_t offset) {
    const auto before = load<std::uint32_t>(made.columns[0] + offset * 4);
    store(made.columns[0] + offset * 4, std::uint32_t{1} << 30);
    auto found = with_sampled_ranges(text, settings, {made.frame->buffer.data(), made.frame->bytes});
    store(made.columns[0] + offset * 4, before);
    return found;
  };
  const auto unseen = with(3);
  ASSERT_TRUE(unseen) << unseen.error().message;
  EXPECT_EQ(*unseen, "sift:/t?key=k&by=range&ranges=62,63,64&fanout=4");
  for (const std::uint64_t offset : {4, 5}) {
    const auto seen = with(offset);
    ASSERT_FALSE(seen);
    EXPECT_THAT(seen.error().message, HasSubstr("the identifier"));
  }
}

// Each try to fit them costs as many as it has.
TEST(RangeSample, NoMoreRangesAreTriedThanCanFit) {
  std::mt19937_64 random(3);
  std::vector<std::uint64_t> values(50'000);
  for (std::uint64_t& each : values) each = random();
  const Settings few = sampled(Type::uint64, values, "&fanout=256"),
                 many = sampled(Type::uint64, values, "&fanout=256&stages=2");
  EXPECT_GT(few.ranges.size(), 15u);
  EXPECT_EQ(many.ranges, few.ranges);
}

TEST(RangeSample, FewValuesMakeFewRanges) {
  EXPECT_THAT(sampled<std::uint64_t>(Type::uint64, {7, 7, 7}).ranges, ::testing::ElementsAre("7"));
  EXPECT_TRUE(sampled<std::uint64_t>(Type::uint64, {}).ranges.empty());
  std::vector<std::uint64_t> many(50'000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = i << 40;
  const Settings settings = sampled(Type::uint64, many, "&fanout=256");
  EXPECT_THAT(settings.ranges.size(), AllOf(Ge(20u), Le(255u))) << "as many as fit a name";
}

TEST(RangeSample, OnlyTheOptionIsReplaced) {
  const std::string text = "sift:/ranges=sample?key=ranges=sample&by=range&ranges=sample&fanout=4";
  const Settings settings = parse_settings(text).value();
  frame::Schema schema;
  schema.fields.push_back({.name = "ranges=sample", .type = Type::uint64});
  const FrameMemory memory{BufferCache::make({.huge_pages = false}), 7};
  const auto made = RowForm::make(schema, settings.key_rule()).value()->make_frame(1, memory).value();
  const std::uint64_t value = 5;
  std::memcpy(made.columns[0], &value, sizeof value);
  EXPECT_EQ(with_sampled_ranges(text, settings, {made.frame->buffer.data(), made.frame->bytes}).value(),
            "sift:/ranges=sample?key=ranges=sample&by=range&ranges=5&fanout=4");
}

TEST(RangeSample, AFrameWithoutTheColumnIsRefused) {
  const std::string text = "sift:/t?key=other&by=range&ranges=sample";
  frame::Schema schema;
  schema.fields.push_back({.name = "k", .type = Type::uint64});
  const FrameMemory memory{BufferCache::make({.huge_pages = false}), 7};
  const auto made = RowForm::make(schema, "k").value()->make_frame(1, memory).value();
  const auto with =
      with_sampled_ranges(text, parse_settings(text).value(), {made.frame->buffer.data(), made.frame->bytes});
  ASSERT_FALSE(with);
  EXPECT_THAT(with.error().message, HasSubstr("no column 'other'"));
}

}  // namespace
}  // namespace offpath::sift
