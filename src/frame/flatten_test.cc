#include "frame/flatten.h"

#include <gtest/gtest.h>

#include <array>

#include "testing/frame/arrays.h"

namespace offpath::frame {
namespace {

std::uint64_t at(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

Layout layout_of(std::vector<Field> fields) {
  auto layout = make_layout({.fields = std::move(fields)});
  EXPECT_TRUE(layout);
  return std::move(*layout);
}

const Field number{.name = "n", .type = Type::int32};

class Flatten : public ::testing::Test {
 protected:
  // Flattens; returns the error or "".
  std::string run(const Layout& layout, const ArrowArray* batch) {
    const Status status = flatten(layout, *batch, view);
    return status ? "" : status.error().message;
  }

  Arrays arrays;
  BatchView view;
  std::array<std::int32_t, 100> values{};
  std::array<std::uint8_t, 16> bitmap{};
};

TEST_F(Flatten, FixedWidthWithoutNullsIsOneBuffer) {
  const Layout layout = layout_of({number});
  ASSERT_EQ(run(layout, arrays.batch(100, {arrays.add({100}, {nullptr, values.data()})})), "");
  EXPECT_EQ(view.rows, 100);
  EXPECT_EQ(view.nodes[0], (NodeShape{100, 0}));
  EXPECT_EQ(view.buffers[0], BufferSource{});
  EXPECT_EQ(view.buffers[1], (BufferSource{at(values.data()), 400}));
}

TEST_F(Flatten, ASliceMovesAddressesAndKeepsABitOffset) {
  const Layout layout = layout_of({number});
  const ArrowArray* column = arrays.add({60, 7, 13}, {bitmap.data(), values.data()});
  ASSERT_EQ(run(layout, arrays.batch(60, {const_cast<ArrowArray*>(column)})), "");
  EXPECT_EQ(view.nodes[0], (NodeShape{60, 7}));
  EXPECT_EQ(view.buffers[0], (BufferSource{at(bitmap.data()) + 1, 9, 0, 5}));  // bits 13..72
  EXPECT_EQ(view.buffers[1], (BufferSource{at(values.data() + 13), 240}));
}

TEST_F(Flatten, ASliceOfTheBatchSlicesItsColumns) {
  const Layout layout = layout_of({number});
  ArrowArray* column = arrays.add({90, 7, 3}, {bitmap.data(), values.data()});
  ASSERT_EQ(run(layout, arrays.batch(20, {column}, 10)), "");
  EXPECT_EQ(view.nodes[0], (NodeShape{20, unknown_nulls}));  // 7 of 90, but of these 20 the null count is unknown
  EXPECT_EQ(view.buffers[0], (BufferSource{at(bitmap.data()) + 1, 4, 0, 5}));
  EXPECT_EQ(view.buffers[1], (BufferSource{at(values.data() + 13), 80}));
}

TEST_F(Flatten, ASliceOfNothingButNullsKnowsItsNulls) {
  const Layout layout = layout_of({number});
  ArrowArray* column = arrays.add({90, 90, 0}, {bitmap.data(), values.data()});
  ASSERT_EQ(run(layout, arrays.batch(20, {column}, 10)), "");
  EXPECT_EQ(view.nodes[0], (NodeShape{20, 20}));
}

TEST_F(Flatten, TextIsTrimmedToWhatItsOffsetsShow) {
  const Layout layout = layout_of({{.name = "t", .type = Type::utf8}});
  const std::array<std::int32_t, 5> offsets{3, 5, 5, 9, 11};
  const char data[] = "0123456789a";
  ArrowArray* column = arrays.add({2, 0, 1}, {nullptr, offsets.data(), data});
  ASSERT_EQ(run(layout, arrays.batch(2, {column})), "");
  EXPECT_EQ(view.buffers[1], (BufferSource{at(offsets.data() + 1), 12}));
  EXPECT_EQ(view.buffers[2], (BufferSource{at(data) + 5, 4}));
}

TEST_F(Flatten, ListsSliceTheirChildren) {
  const Layout layout = layout_of({{.name = "l", .type = Type::large_list, .children = {number}}});
  const std::array<std::int64_t, 4> offsets{2, 4, 10, 20};
  ArrowArray* child = arrays.add({30, 0, 5}, {nullptr, values.data()});
  ASSERT_EQ(run(layout, arrays.batch(2, {arrays.add({2, 0, 1}, {nullptr, offsets.data()}, {child})})), "");
  EXPECT_EQ(view.nodes[1], (NodeShape{16, 0}));
  EXPECT_EQ(view.buffers[1], (BufferSource{at(offsets.data() + 1), 24}));
  EXPECT_EQ(view.buffers[3], (BufferSource{at(values.data() + 5 + 4), 64}));
}

TEST_F(Flatten, FixedListsMultiplyAndStructsPassOn) {
  const Field list{.name = "l", .type = Type::fixed_list, .width = 3, .children = {number}};
  const Layout layout = layout_of({{.name = "s", .type = Type::structure, .children = {list}}});
  ArrowArray* child = arrays.add({90, 0, 1}, {nullptr, values.data()});
  ArrowArray* lists = arrays.add({30, 0, 0}, {nullptr}, {child});
  ASSERT_EQ(run(layout, arrays.batch(4, {arrays.add({10, 0, 2}, {nullptr}, {lists})}, 5)), "");
  EXPECT_EQ(view.nodes[0], (NodeShape{4, 0}));
  EXPECT_EQ(view.nodes[1], (NodeShape{4, 0}));
  EXPECT_EQ(view.nodes[2], (NodeShape{12, 0}));
  EXPECT_EQ(view.buffers[3], (BufferSource{at(values.data() + 1 + 3 * (5 + 2)), 48}));
}

TEST_F(Flatten, DictionariesAreWholeWhateverTheSlice) {
  const Layout layout = layout_of({{.name = "d", .type = Type::int32, .dictionary = {{.type = Type::int32}}}});
  std::array<std::int32_t, 7> words{};
  ArrowArray* dictionary = arrays.add({6, 0, 1}, {nullptr, words.data()});
  ArrowArray* column = arrays.add({20, 0, 4}, {nullptr, values.data()}, {}, dictionary);
  ASSERT_EQ(run(layout, arrays.batch(20, {column})), "");
  EXPECT_EQ(view.nodes[1], (NodeShape{6, 0}));
  EXPECT_EQ(view.buffers[1], (BufferSource{at(values.data() + 4), 80}));
  EXPECT_EQ(view.buffers[3], (BufferSource{at(words.data() + 1), 24}));
}

TEST_F(Flatten, EmptyArraysNeedNoMemory) {
  const Layout layout = layout_of({number,
                                   {.name = "t", .type = Type::utf8},
                                   {.name = "l", .type = Type::list, .children = {number}},
                                   {.name = "b", .type = Type::boolean}});
  ArrowArray* child = arrays.add({0}, {nullptr, nullptr});
  ASSERT_EQ(
      run(layout, arrays.batch(0, {arrays.add({0}, {nullptr, nullptr}), arrays.add({0}, {nullptr, nullptr, nullptr}),
                                   arrays.add({0}, {nullptr, nullptr}, {child}), arrays.add({0}, {nullptr, nullptr})})),
      "");
  for (const BufferSource& source : view.buffers) EXPECT_EQ(source, BufferSource{});
}

TEST_F(Flatten, ASliceOfASparseUnionSlicesItsChildren) {
  const Layout layout = layout_of({{.name = "u", .type = Type::sparse_union, .children = {number}, .type_codes = {3}}});
  const std::array<std::int8_t, 9> codes{};
  ArrowArray* child = arrays.add({9, 0, 2}, {nullptr, values.data()});
  ASSERT_EQ(run(layout, arrays.batch(4, {arrays.add({5, 0, 1}, {codes.data()}, {child})}, 1)), "");
  EXPECT_EQ(view.nodes[0], (NodeShape{4, 0}));
  EXPECT_EQ(view.buffers[0], (BufferSource{at(codes.data() + 2), 4}));
  EXPECT_EQ(view.buffers[2], (BufferSource{at(values.data() + 2 + 2), 16}));
}

TEST_F(Flatten, ADenseUnionShowsItsChildrenWhole) {
  const Layout layout =
      layout_of({{.name = "u", .type = Type::dense_union, .children = {number, number}, .type_codes = {0, 1}}});
  const std::array<std::int8_t, 9> codes{};
  const std::array<std::int32_t, 9> places{};
  const auto batch = [&](std::int64_t rows) {
    ArrowArray* first = arrays.add({9, 0, 2}, {nullptr, values.data()});
    ArrowArray* second = arrays.add({0}, {nullptr, nullptr});
    return arrays.batch(rows, {arrays.add({5, 0, 1}, {codes.data(), places.data()}, {first, second})}, 1);
  };
  ASSERT_EQ(run(layout, batch(4)), "");
  EXPECT_EQ(view.buffers[0], (BufferSource{at(codes.data() + 2), 4}));
  EXPECT_EQ(view.buffers[1], (BufferSource{at(places.data() + 2), 16}));
  EXPECT_EQ(view.nodes[1], (NodeShape{9, 0}));
  EXPECT_EQ(view.buffers[3], (BufferSource{at(values.data() + 2), 36}));
  ASSERT_EQ(run(layout, batch(0)), "");
  EXPECT_EQ(view.nodes[1], NodeShape{}) << "no value shows any";
  for (const BufferSource& source : view.buffers) EXPECT_EQ(source, BufferSource{});
}

TEST_F(Flatten, UnionsOfAnotherFormAreRefused) {
  const Layout layout = layout_of({{.name = "u", .type = Type::dense_union, .children = {number}, .type_codes = {0}}});
  const std::array<std::int8_t, 9> codes{};
  const auto error_of = [&](std::vector<const void*> buffers, std::vector<ArrowArray*> children) {
    return run(layout, arrays.batch(3, {arrays.add({3}, std::move(buffers), std::move(children))}));
  };
  ArrowArray* child = arrays.add({9}, {nullptr, values.data()});
  EXPECT_EQ(error_of({codes.data()}, {child}), "'u' has 1 buffers, dense_union has 2");
  EXPECT_EQ(error_of({codes.data(), nullptr}, {child}), "'u' has 3 values, but no offsets");
  EXPECT_EQ(error_of({nullptr, values.data()}, {child}), "'u' has 3 values, but no type codes");
  EXPECT_EQ(error_of({codes.data(), values.data()}, {}), "'u' has 0 children, its schema 1");
  EXPECT_EQ(error_of({codes.data(), values.data()}, {nullptr}), "the array of 'u.n' is missing");
}

TEST_F(Flatten, AReusedViewKeepsNothingOfTheLastBatch) {
  const Layout layout = layout_of({number});
  ASSERT_EQ(run(layout, arrays.batch(60, {arrays.add({60, 7, 13}, {bitmap.data(), values.data()})})), "");
  ASSERT_EQ(run(layout, arrays.batch(0, {arrays.add({0}, {nullptr, nullptr})})), "");
  EXPECT_EQ(view.nodes[0], NodeShape{});
  for (const BufferSource& source : view.buffers) EXPECT_EQ(source, BufferSource{});
}

TEST_F(Flatten, WhatDoesNotFitIsNamed) {
  const Field inner{.name = "i", .type = Type::int32, .nullable = false};
  const Layout layout = layout_of({{.name = "s", .type = Type::structure, .children = {inner}}});
  const auto with = [&](ArrowArray* child) { return arrays.batch(10, {arrays.add({10}, {nullptr}, {child})}); };
  const void* data = values.data();
  EXPECT_EQ(run(layout, arrays.batch(10, {})), "the batch has 0 columns, its schema 1");
  EXPECT_EQ(run(layout, arrays.batch(10, {nullptr})), "the array of 's' is missing");
  EXPECT_EQ(run(layout, arrays.batch(10, {arrays.add({10}, {nullptr})})), "'s' has 0 children, its schema 1");
  EXPECT_EQ(run(layout, with(arrays.add({10}, {nullptr}))), "'s.i' has 1 buffers, int32 has 2");
  EXPECT_EQ(run(layout, with(arrays.add({9}, {nullptr, data}))),
            "'s.i' has 9 values from offset 0 on, its parent shows 10 from 0 on");
  EXPECT_EQ(run(layout, with(arrays.add({10, 11}, {bitmap.data(), data}))), "'s.i' has 11 nulls in 10 values");
  EXPECT_EQ(run(layout, with(arrays.add({10, 1}, {nullptr, data}))), "'s.i' has 1 nulls, but no validity bitmap");
  EXPECT_EQ(run(layout, with(arrays.add({10, 1}, {bitmap.data(), data}))), "'s.i' has 1 nulls, its schema allows none");
  EXPECT_EQ(run(layout, with(arrays.add({10}, {nullptr, nullptr}))), "'s.i' has 10 values, but no buffer of values");
  ArrowArray* released = with(arrays.add({10}, {nullptr, data}));
  released->children[0]->release = nullptr;
  EXPECT_EQ(run(layout, released), "the array of 's' is already released");
}

TEST_F(Flatten, OffsetsThatDescendAreRefused) {
  const Layout layout =
      layout_of({{.name = "t", .type = Type::utf8}, {.name = "l", .type = Type::list, .children = {number}}});
  const std::array<std::int32_t, 3> down{4, 2, 1};
  const std::array<std::int32_t, 3> below{-1, 2, 3};
  const std::array<std::int32_t, 3> good{0, 0, 0};
  const std::array<std::int32_t, 3> beyond{0, 4, 101};
  ArrowArray* child = arrays.add({100}, {nullptr, values.data()});
  ArrowArray* lists = arrays.add({2}, {nullptr, good.data()}, {child});
  EXPECT_EQ(run(layout, arrays.batch(2, {arrays.add({2}, {nullptr, down.data(), "abcd"}), lists})),
            "the offsets of 't' run from 4 to 1, expected ascending from 0 or more");
  EXPECT_EQ(run(layout, arrays.batch(2, {arrays.add({2}, {nullptr, below.data(), "abcd"}), lists})),
            "the offsets of 't' run from -1 to 3, expected ascending from 0 or more");
  EXPECT_EQ(run(layout, arrays.batch(2, {arrays.add({2}, {nullptr, good.data(), nullptr}),
                                         arrays.add({2}, {nullptr, beyond.data()}, {child})})),
            "'l.n' has 100 values from offset 0 on, its parent shows 101 from 0 on");
}

TEST_F(Flatten, RowsThatAreNullAsAWholeAreRefused) {
  const Layout layout = layout_of({number});
  bitmap.fill(0xFF);
  ArrowArray* batch = arrays.add({10, unknown_nulls}, {bitmap.data()}, {arrays.add({10}, {nullptr, values.data()})});
  EXPECT_EQ(run(layout, batch), "");
  bitmap[1] = 0xFD;
  EXPECT_EQ(run(layout, batch), "row 9 of the batch is null as a whole, which a record batch cannot express");
}

class Plain : public ::testing::Test {
 protected:
  std::string run(const Layout& layout, std::int64_t rows, std::vector<PlainColumn> columns) {
    const Status status = flatten_plain(layout, rows, columns, view);
    return status ? "" : status.error().message;
  }
  BatchView view;
};

TEST_F(Plain, RowsTellEverySize) {
  const Field position{
      .name = "x", .type = Type::fixed_list, .width = 3, .children = {{.name = "item", .type = Type::float64}}};
  const Layout layout = layout_of({number, position, {.name = "flag", .type = Type::boolean}});
  ASSERT_EQ(run(layout, 10, {{.address = 64}, {.address = 4096}, {.address = 128}}), "");
  EXPECT_EQ(view.rows, 10);
  EXPECT_EQ(view.nodes, (std::vector<NodeShape>{{10, 0}, {10, 0}, {30, 0}, {10, 0}}));
  EXPECT_EQ(view.buffers[1], (BufferSource{64, 40}));
  EXPECT_EQ(view.buffers[4], (BufferSource{4096, 240}));
  EXPECT_EQ(view.buffers[6], (BufferSource{128, 2}));
}

TEST_F(Plain, StridesAndBitmaps) {
  const Layout layout = layout_of({number, {.name = "flag", .type = Type::boolean}});
  ASSERT_EQ(
      run(layout, 10,
          {{.address = 64, .stride_bytes = 24, .validity = 8, .null_count = 3}, {.address = 128, .stride_bytes = 1}}),
      "");
  EXPECT_EQ(view.nodes[0], (NodeShape{10, 3}));
  EXPECT_EQ(view.buffers[0], (BufferSource{8, 2}));
  EXPECT_EQ(view.buffers[1], (BufferSource{64, 9 * 24 + 4, 24}));
  EXPECT_EQ(view.buffers[3], (BufferSource{128, 10, 1}));  // a byte per value
  ASSERT_EQ(run(layout, 10, {{.address = 64, .stride_bytes = 4}, {.address = 128}}), "");
  EXPECT_EQ(view.buffers[0], BufferSource{});
  EXPECT_EQ(view.buffers[1], (BufferSource{64, 40}));  // side by side after all
}

TEST_F(Plain, RefusesWhatAddressesCannotTell) {
  const Layout layout = layout_of({number});
  EXPECT_EQ(run(layout, -1, {{.address = 64}}), "the batch has -1 rows, at least 0 is allowed");
  EXPECT_EQ(run(layout, 1, {}), "the batch has 0 columns, its schema 1");
  EXPECT_EQ(run(layout, 1, {{}}), "the address of 'n' is null, for 1 rows");
  EXPECT_EQ(run(layout, 0, {{}}), "");
  EXPECT_EQ(run(layout, INT64_MAX, {{.address = 1, .stride_bytes = 8}}),
            "'n' has 9223372036854775807 values of 4 bytes, 8 apart, which is too large");
  EXPECT_EQ(run(layout_of({{.name = "t", .type = Type::utf8}}), 1, {{.address = 64}}),
            "'t' is not of a fixed width; a plain array cannot be given for string");
  EXPECT_EQ(run(layout_of({{.name = "d", .type = Type::int8, .dictionary = {number}}}), 1, {{.address = 64}}),
            "'d' is not of a fixed width; a plain array cannot be given for int8");
}

}  // namespace
}  // namespace offpath::frame
