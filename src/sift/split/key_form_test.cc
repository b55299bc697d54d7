#include "sift/split/key_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <span>

#include "sift/split/particles.h"
#include "sift/split/row_form.h"
#include "sift/tracks/compaction.h"

namespace offpath::sift {
namespace {

using frame::Type;
using ::testing::HasSubstr;

KeyForm form_of(Type type, std::uint32_t bytes, KeyBy by = KeyBy::hash, std::vector<std::string> ranges = {}) {
  return KeyForm::make({.name = "k", .type = type}, bytes, {std::string("k"), by, std::move(ranges)}).value();
}

// Distinct values in order: their keys ascend, and convert back to the values.
template <class Value>
void expect_order(const KeyForm& form, const std::vector<Value>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::byte bytes[sizeof(Value)], again[8] = {};
    std::memcpy(bytes, &values[i], sizeof(Value));
    const std::uint64_t key = form.key_of(bytes);
    EXPECT_EQ(key, form.key_of(form.identifier_of(bytes)));
    form.store(key, again);
    EXPECT_EQ(std::memcmp(bytes, again, sizeof(Value)), 0) << "value " << i;
    if (i == 0) continue;
    std::memcpy(bytes, &values[i - 1], sizeof(Value));
    EXPECT_LT(form.key_of(bytes), key) << "value " << i;
  }
}

TEST(KeyForm, KeysAreInTheOrderOfTheirValues) {
  expect_order<std::int8_t>(form_of(Type::int8, 1), {-128, -1, 0, 1, 127});
  expect_order<std::int16_t>(form_of(Type::int16, 2, KeyBy::bits), {-32768, -300, -1, 0, 5, 32767});
  expect_order<std::uint8_t>(form_of(Type::uint8, 1), {0, 1, 128, 255});
  expect_order<std::uint64_t>(form_of(Type::uint64, 8), {0, 1, 1ull << 63, UINT64_MAX});
  expect_order<std::int64_t>(form_of(Type::timestamp, 8), {INT64_MIN, -1, 0, 1'700'000'000'000, INT64_MAX});
  expect_order<std::int32_t>(form_of(Type::date32, 4), {INT32_MIN, -719162, 0, 20000});
  constexpr double infinity = std::numeric_limits<double>::infinity();
  expect_order<double>(form_of(Type::float64, 8), {-infinity, -1e300, -1.5, -5e-324, 0.0, 5e-324, 0.1, 1e300, infinity,
                                                   std::numeric_limits<double>::quiet_NaN()});
  expect_order<float>(form_of(Type::float32, 4), {-INFINITY, -2.5F, -1e-45F, 0.0F, 1e-45F, 3e38F, INFINITY, NAN});
  using Three = std::array<std::uint8_t, 3>;
  expect_order<Three>(form_of(Type::fixed_binary, 3), {{0, 0, 0}, {0, 0, 255}, {0, 1, 0}, {1, 0, 0}, {255, 255, 255}});
  using Eight = std::array<std::uint8_t, 8>;
  expect_order<Eight>(form_of(Type::fixed_binary, 8), {{0, 0, 0, 0, 0, 0, 0, 1}, {1}, {255}});
}

TEST(KeyForm, ValuesThatCompareEqualAreOneIdentifier) {
  const KeyForm form = form_of(Type::float64, 8);
  const auto key = [&](double value) { return form.key_of(reinterpret_cast<const std::byte*>(&value)); };
  EXPECT_EQ(key(0.0), key(-0.0));
  EXPECT_EQ(key(std::nan("1")), key(-std::nan("77")));
  double stored = 1;
  form.store(key(-0.0), reinterpret_cast<std::byte*>(&stored));
  EXPECT_FALSE(std::signbit(stored));
}

TEST(KeyForm, IdentifiersAreOfTheWidthOfTheirColumn) {
  const auto minus = [](std::int64_t value) { return static_cast<std::uint64_t>(-value); };
  const KeyForm narrow = form_of(Type::int8, 1), without_sign = form_of(Type::uint8, 1), wide = form_of(Type::int64, 8);
  for (const std::uint64_t each : {std::uint64_t{5}, std::uint64_t{0xFB}, minus(5), minus(128)})
    EXPECT_TRUE(narrow.is_identifier(each)) << each;
  for (const std::uint64_t each : {std::uint64_t{0x105}, minus(129)}) EXPECT_FALSE(narrow.is_identifier(each)) << each;
  EXPECT_TRUE(without_sign.is_identifier(0xFB));
  EXPECT_FALSE(without_sign.is_identifier(minus(5)));
  EXPECT_TRUE(wide.is_identifier(minus(5)));
}

TEST(KeyForm, PlacesFollowTheRule) {
  const KeyForm bits = form_of(Type::int8, 1, KeyBy::bits);
  const auto low = static_cast<std::uint64_t>(std::int64_t{-3});
  EXPECT_EQ(bits.place_of(bits.key_of(low)), low) << "as for wider integers";
  const KeyForm range = form_of(Type::float64, 8, KeyBy::range, {"-1.5", "0", "2e3"});
  const auto place = [&](double value) {
    return range.place_of(range.key_of(reinterpret_cast<const std::byte*>(&value)));
  };
  EXPECT_EQ(place(-1e9), 0u);
  EXPECT_EQ(place(-1.5), 1u);
  EXPECT_EQ(place(-0.0), 2u);
  EXPECT_EQ(place(1999), 2u);
  EXPECT_EQ(place(2000), 3u);
  EXPECT_EQ(place(NAN), 3u);
  const KeyForm binary = form_of(Type::fixed_binary, 2, KeyBy::range, {"10", "10ff"});
  const std::byte value[] = {std::byte{0x10}, std::byte{0xFE}};
  EXPECT_EQ(binary.place_of(binary.key_of(value)), 1u);
}

// Multiples of a million, whose low bits are alike.
TEST(KeyForm, HashesSpreadWhatLowBitsWouldNot) {
  const KeyForm form = form_of(Type::timestamp, 8);
  std::array<int, 16> counts{};
  for (std::int64_t i = 0; i < 16'000; ++i)
    ++counts[form.place_of(form.key_of(static_cast<std::uint64_t>(i * 1'048'576))) % 16];
  EXPECT_GT(*std::ranges::min_element(counts), 850);
}

TEST(KeyForm, WhatIsNoIdentifierIsRefusedByName) {
  const auto refusal = [](Type type, std::uint32_t bytes, KeyBy by, std::vector<std::string> ranges = {}) {
    const auto made =
        KeyForm::make({.name = "k", .type = type, .width = 16}, bytes, {std::string("k"), by, std::move(ranges)});
    return made ? std::string() : made.error().message;
  };
  EXPECT_THAT(refusal(Type::float64, 8, KeyBy::bits), HasSubstr("the identifier 'k' is float64"));
  EXPECT_EQ(refusal(Type::fixed_binary, 1024, KeyBy::hash), "");
  EXPECT_THAT(refusal(Type::fixed_binary, 1025, KeyBy::hash), HasSubstr("binary of at most 1024 bytes"));
  EXPECT_THAT(refusal(Type::fixed_binary, 0, KeyBy::hash), HasSubstr("the identifier 'k' is"));
  EXPECT_THAT(refusal(Type::fixed_binary, 16, KeyBy::bits), HasSubstr("by=hash or by=range"));
  EXPECT_THAT(refusal(Type::utf8, 0, KeyBy::bits), HasSubstr("the identifier 'k' is string"));
  EXPECT_EQ(refusal(Type::utf8, 0, KeyBy::range, {"61", "6162", "62"}), "");
  EXPECT_THAT(refusal(Type::utf8, 0, KeyBy::range, {"62", "6162"}), HasSubstr("not more than the one before"));
  EXPECT_THAT(refusal(Type::decimal128, 16, KeyBy::range, {"170141183460469231731687303715884105728"}),
              HasSubstr("is no value of the identifier 'k'"));
  EXPECT_THAT(refusal(Type::boolean, 1, KeyBy::hash), HasSubstr("the identifier 'k' is bool"));
  EXPECT_EQ(refusal(Type::int32, 4, KeyBy::range, {"-5", "7"}), "");
  EXPECT_THAT(refusal(Type::int32, 4, KeyBy::range, {"7", "x"}), HasSubstr("'x' is no value of the identifier 'k'"));
  EXPECT_THAT(refusal(Type::int8, 1, KeyBy::range, {"128"}), HasSubstr("'128' is no value"));
  EXPECT_THAT(refusal(Type::uint16, 2, KeyBy::range, {"65536"}), HasSubstr("'65536' is no value"));
  EXPECT_THAT(refusal(Type::float32, 4, KeyBy::range, {"1.5", "1.5"}), HasSubstr("not more than the one before"));
  EXPECT_THAT(refusal(Type::fixed_binary, 2, KeyBy::range, {"abc"}), HasSubstr("'abc' is no value"));
}

// As the column has them, in order.
void expect_long_order(const KeyForm& form, const std::vector<std::string>& values) {
  ASSERT_TRUE(form.is_long());
  std::string before;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::string ordered = values[i], again = values[i];
    if (!form.is_text()) {
      form.order(bytes_of(values[i]).data(), reinterpret_cast<std::byte*>(ordered.data()));
      form.restore(bytes_of(ordered).data(), reinterpret_cast<std::byte*>(again.data()));
    }
    EXPECT_EQ(again, values[i]);
    EXPECT_EQ(form.place_of(bytes_of(ordered)), form.place_of_value(bytes_of(values[i])));
    EXPECT_TRUE(i == 0 || LongKey::of(bytes_of(before)) < LongKey::of(bytes_of(ordered))) << "value " << i;
    EXPECT_EQ(LongKey::of(bytes_of(ordered)), LongKey::of(bytes_of(ordered)));
    before = ordered;
  }
}

// Of `bytes` bytes, the lowest first.
std::string whole(std::int64_t low, std::uint32_t bytes) {
  std::string value(bytes, static_cast<char>(low < 0 ? 0xFF : 0));
  std::memcpy(value.data(), &low, sizeof low);
  return value;
}

TEST(KeyForm, LongKeysAreInTheOrderOfTheirValues) {
  const std::string highest = std::string(15, '\xFF') + '\x7F', lowest = std::string(15, '\0') + '\x80';
  expect_long_order(form_of(Type::decimal128, 16),
                    {lowest, whole(INT64_MIN, 16), whole(-256, 16), whole(-1, 16), whole(0, 16), whole(1, 16),
                     whole(255, 16), whole(256, 16), whole(INT64_MAX, 16), highest});
  expect_long_order(form_of(Type::decimal256, 32), {whole(-5, 32), whole(0, 32), whole(7, 32)});
  expect_long_order(form_of(Type::fixed_binary, 9),
                    {std::string(9, '\0'), "aaaaaaaaa", "aaaaaaaab", "aaaaaaaa\xFF", std::string(9, '\xFF')});
  // A prefix comes before longer text, and zero bytes count.
  const std::string zero(1, '\0');
  expect_long_order(form_of(Type::utf8, 0),
                    {"", zero, zero + zero, zero + "a", "a", "a" + zero, "a" + zero + zero, "ab", "abcdefgh",
                     "abcdefgh" + zero, "abcdefghi", "abcdefgi", "b", "\xC3\xA4"});
}

TEST(KeyForm, RangesOfLongKeysAreWrittenAsTheyAreRead) {
  const KeyForm number =
      form_of(Type::decimal128, 16, KeyBy::range, {"-18446744073709551616", "0", "18446744073709551616"});
  const auto place = [](const KeyForm& form, const std::string& value) { return form.place_of_value(bytes_of(value)); };
  EXPECT_EQ(place(number, whole(INT64_MIN, 16)), 1u);
  EXPECT_EQ(place(number, std::string(15, '\0') + '\x80'), 0u);
  EXPECT_EQ(place(number, whole(0, 16)), 2u);
  EXPECT_EQ(place(number, whole(INT64_MAX, 16)), 2u);
  EXPECT_EQ(place(number, std::string(8, '\0') + '\1' + std::string(7, '\0')), 3u);
  for (const std::string text : {"-170141183460469231731687303715884105728", "-18446744073709551616", "-1", "0", "7",
                                 "170141183460469231731687303715884105727"}) {
    const auto key = number.long_key_of_text(text);
    ASSERT_TRUE(key) << text;
    EXPECT_EQ(number.text_of(bytes_of(*key)), text);
  }
  for (const char* const text :
       {"", "-", "1.5", "0x1", "170141183460469231731687303715884105728", "-170141183460469231731687303715884105729",
        "999999999999999999999999999999999999999999"})
    EXPECT_FALSE(number.long_key_of_text(text)) << text;
  const KeyForm text = form_of(Type::utf8, 0, KeyBy::range, {"62", "6262"});
  EXPECT_EQ(place(text, ""), 0u);
  EXPECT_EQ(place(text, "b"), 1u);
  EXPECT_EQ(place(text, "ba"), 1u);
  EXPECT_EQ(place(text, "bb"), 2u);
  const KeyForm bytes = form_of(Type::fixed_binary, 16, KeyBy::range, {"10"});
  EXPECT_EQ(place(bytes, std::string(16, '\x0F')), 0u);
  EXPECT_EQ(place(bytes, '\x10' + std::string(15, '\0')), 1u);
}

// All have the same bytes except for a few.
TEST(KeyForm, HashesSpreadLongKeys) {
  for (const std::size_t at : {0u, 8u, 12u}) {
    std::array<int, 16> counts{};
    for (std::uint32_t i = 0; i < 16'000; ++i) {
      std::string value(16, 'x');
      std::memcpy(value.data() + at, &i, sizeof i);
      ++counts[form_of(Type::fixed_binary, 16).place_of_value(bytes_of(value)) % 16];
    }
    EXPECT_GT(*std::ranges::min_element(counts), 850) << at;
  }
}

class LongSplit : public ::testing::TestWithParam<Type> {};

// A part has exactly the rows with its place, in order, and its seal is that of the frame.
TEST_P(LongSplit, RowsGoToThePartOfTheirPlace) {
  const FrameMemory memory{BufferCache::make({.huge_pages = false}), 7};
  frame::Schema schema = particle_schema();
  schema.fields[0].type = GetParam();
  schema.fields[0].width = GetParam() == Type::fixed_binary ? 16 : 0;
  if (GetParam() == Type::decimal128 || GetParam() == Type::decimal256) schema.fields[0].precision = 38;
  std::swap(schema.fields[0], schema.fields[2]);  // not the first column
  const auto form = RowForm::make(schema, {std::string("id"), KeyBy::hash}).value();
  std::vector<Piece> pieces;
  std::map<std::pair<std::uint64_t, std::int64_t>, int> put, found;
  std::mt19937_64 random(3);
  for (const std::uint64_t rows : {1u, 40'000u, 7u}) {
    std::vector<std::uint64_t> ids(rows);
    const auto step = static_cast<std::int64_t>(pieces.size());
    for (std::uint64_t& id : ids) ++put[{id = random() % 5000 - 2, step}];
    const FramePtr frame = particle_frame(*form, ids, step, memory);
    EXPECT_LE(frame->bytes, form->frame_bytes(rows, 0) + 40 * rows + form->overhead_bytes());
    pieces.push_back({frame, form->view({frame->buffer.data(), frame->bytes}).value(), {{step, rows}}});
  }
  std::uint64_t bytes = 0, rows = 0, text_bytes = 0;
  const std::vector<Part> parts = split_pieces(*form, pieces, {2, 3}, memory).value();
  for (const Part& part : parts) {
    const RowsView view = form->view({part.frame->buffer.data(), part.frame->bytes}).value();
    EXPECT_EQ(part.crc32c_of_identifiers, crc32c_of_identifiers(view));
    EXPECT_LE(part.frame->bytes, form->frame_bytes(view.rows, view.text_bytes()) + form->overhead_bytes());
    bytes += part.frame->buffer.capacity();
    text_bytes += view.text_bytes();
    rows += view.rows;
    std::uint64_t row = 0;
    for (const StepRun& run : part.runs)
      for (std::uint64_t i = 0; i < run.rows; ++i, ++row) {
        const Bytes value = view.value_of_id(row);
        ASSERT_EQ(form->key().place_of_value(value) >> 2 & 7, part.number);
        ASSERT_EQ(wrong_row(*form, view, row, run.step), "");
        ++found[{id_of_value(*form, value), run.step}];
      }
    EXPECT_EQ(row, view.rows);
  }
  EXPECT_TRUE(found == put);
  EXPECT_LE(bytes, parts_bytes_max(rows, form->row_bytes(), 8, form->overhead_bytes()) + text_bytes * 9 / 8);
}

INSTANTIATE_TEST_SUITE_P(ByType, LongSplit,
                         ::testing::Values(Type::fixed_binary, Type::decimal128, Type::decimal256, Type::utf8,
                                           Type::binary, Type::large_utf8),
                         [](const auto& each) { return std::string(frame::type_name(each.param)); });

// As a program could send it. A split must not take more pieces than one part's frame can hold: it would fail each
// time.
TEST(LongIdentifiers, OffsetsOfFourBytesBoundAFrame) {
  const FrameMemory memory{BufferCache::make({.huge_pages = false}), 7};
  for (const auto& [type, bounded] : {std::pair{Type::utf8, true}, {Type::large_utf8, false}, {Type::uint64, false}}) {
    frame::Schema schema;
    schema.fields.push_back({.name = "id", .type = type});
    const auto form = RowForm::make(schema, {"id", KeyBy::hash}).value();
    EXPECT_TRUE(form->fits_frame(INT32_MAX));
    EXPECT_EQ(form->fits_frame(std::uint64_t{INT32_MAX} + 1), !bounded);
    if (bounded) {
      EXPECT_EQ(form->make_frame(1, memory, std::uint64_t{INT32_MAX} + 1).error().code, Error::too_large);
    }
  }
}

TEST(LongIdentifiers, OffsetsThatContradictTheirBytesAreRefused) {
  const FrameMemory memory{BufferCache::make({.huge_pages = false}), 7};
  frame::Schema schema;
  schema.fields.push_back({.name = "id", .type = Type::utf8});
  const auto form = RowForm::make(schema, {std::string("id"), KeyBy::hash}).value();
  const auto refusal = [&](std::vector<std::int32_t> ends, std::uint64_t text_bytes) {
    const RowForm::Made made = form->make_frame(ends.size(), memory, text_bytes).value();
    std::ranges::copy(std::as_bytes(std::span(ends)), made.columns[0] + 4);
    const auto view = form->view({made.frame->buffer.data(), made.frame->bytes});
    return view ? std::string() : view.error().message;
  };
  EXPECT_EQ(refusal({0, 3, 3, 10}, 10), "");
  EXPECT_EQ(refusal({}, 0), "");
  EXPECT_EQ(refusal({0, 0}, 0), "");
  EXPECT_THAT(refusal({4, 3, 10}, 10), HasSubstr("the identifier 'id' of row 1 is from 4 to 3 of 10 bytes"));
  EXPECT_THAT(refusal({4, 11, 10}, 10), HasSubstr("row 1 is from 4 to 11 of 10 bytes"));
  EXPECT_THAT(refusal({-1, 10}, 10), HasSubstr("row 0 is from 0 to -1 of 10 bytes"));
  EXPECT_THAT(refusal({4, 1029}, 1029), HasSubstr("the identifier 'id' of row 1 has 1025 bytes, at most 1024"));
}

TEST(LongIdentifiers, TextIsUtf8InEachRow) {
  const FrameMemory memory{BufferCache::make({.huge_pages = false}), 7};
  const auto refusal = [&](Type type, std::string_view text) {
    frame::Schema schema;
    schema.fields.push_back({.name = "id", .type = type});
    const auto form = RowForm::make(schema, {std::string("id"), KeyBy::hash}).value();
    RowForm::Made made = form->make_frame(2, memory, text.size()).value();
    TextTarget texts{made.columns[0], made.text};
    texts.add(bytes_of(text.substr(0, 2)), form->key_bytes());
    texts.add(bytes_of(text.substr(2)), form->key_bytes());
    const Status status = form->check_utf8(form->view({made.frame->buffer.data(), made.frame->bytes}).value());
    return status ? std::string() : status.error().message;
  };
  for (const Type type : {Type::utf8, Type::large_utf8}) {
    EXPECT_EQ(refusal(type, "abc"), "");
    EXPECT_EQ(refusal(type, "\xC3\xA4z"), "");
    EXPECT_THAT(refusal(type, "ab\xFF"), HasSubstr("the identifier 'id' of row 1 is not UTF-8"));
    EXPECT_THAT(refusal(type, "a\xC3\xA4"), HasSubstr("the identifier 'id' of row 0 is not UTF-8")) << "cut in two";
  }
  EXPECT_EQ(refusal(Type::binary, "ab\xFF"), "");
}

TEST(KeyForm, PiecesOfComputedPlacesSplitAsOthers) {
  const FrameMemory memory{BufferCache::make({.huge_pages = false}), 7};
  frame::Schema schema;
  schema.fields.push_back({.name = "k", .type = Type::float32});
  schema.fields.push_back({.name = "x", .type = Type::int16});
  const auto form = RowForm::make(schema, {std::string("k"), KeyBy::hash}).value();
  constexpr std::uint64_t rows = 50'000;  // several stretches
  RowForm::Made made = form->make_frame(rows, memory).value();
  std::mt19937 random(3);
  std::array<std::uint64_t, 8> expected{};
  for (std::uint64_t row = 0; row < rows; ++row) {
    const auto value = static_cast<float>(random() % 1000) / 8;
    std::memcpy(made.columns[0] + row * 4, &value, 4);
    const auto copy = static_cast<std::int16_t>(value * 8);
    std::memcpy(made.columns[1] + row * 2, &copy, 2);
    ++expected[form->key().place_of(form->key().key_of(made.columns[0] + row * 4)) >> 2 & 7];
  }
  const std::vector<Piece> pieces{
      {made.frame, form->view({made.frame->buffer.data(), made.frame->bytes}).value(), {{1, 20'000}, {2, 30'000}}}};
  const std::vector<Part> parts = split_pieces(*form, pieces, {2, 3}, memory).value();
  for (const Part& part : parts) {
    const RowsView view = form->view({part.frame->buffer.data(), part.frame->bytes}).value();
    EXPECT_EQ(view.rows, expected[part.number]);
    EXPECT_EQ(part.crc32c_of_identifiers, crc32c({view.ids.values, view.rows * 4}));
    for (std::uint64_t row = 0; row < view.rows; ++row) {
      const std::byte* const value = view.ids.values + row * 4;
      ASSERT_EQ(form->key().place_of(form->key().key_of(value)) >> 2 & 7, part.number);
      ASSERT_EQ(load<float>(value) * 8, load<std::int16_t>(view.columns[1].values + row * 2)) << "the same row";
    }
  }
}

}  // namespace
}  // namespace offpath::sift
