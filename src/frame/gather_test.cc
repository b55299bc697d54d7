#include "frame/gather.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <numeric>

#include "frame/layout.h"
#include "testing/frame/arrays.h"

namespace offpath::frame {
namespace {

const Field views{.name = "t", .type = Type::large_utf8, .view = true};
const Field number{.name = "n", .type = Type::int32};
const Field runs{.name = "r", .type = Type::int32, .run_ends = {4}};

Field list_view(Type type, Field of) { return {.name = "l", .type = type, .children = {std::move(of)}, .view = true}; }

// The views of these texts: those of more than 12 bytes into buffer 0, one behind the other.
struct Texts {
  explicit Texts(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      std::array<std::byte, 16> view{};
      store(view.data(), static_cast<std::int32_t>(text.size()));
      const bool inside = text.size() <= 12;
      std::memcpy(view.data() + 4, text.data(), inside ? text.size() : 4);
      if (!inside) store(view.data() + 12, static_cast<std::int32_t>(data.size()));
      if (!inside) data += text;
      bytes.insert(bytes.end(), view.begin(), view.end());
    }
    length = static_cast<std::int64_t>(data.size());
  }
  std::vector<const void*> buffers(const void* validity = nullptr) const {
    return {validity, bytes.data(), data.data(), &length};
  }
  void set(std::size_t row, std::size_t at, std::int32_t value) { store(bytes.data() + row * 16 + at, value); }
  std::vector<std::byte> bytes;
  std::string data;
  std::int64_t length = 0;
};

const std::string long_one = "longer than twelve", long_two = "even longer than that";

class Gather : public ::testing::Test {
 protected:
  // Counts, then lays out in exactly so many bytes. Returns the error or "".
  std::string run(std::vector<Field> fields, const ArrowArray* batch, std::uint64_t bytes_max = 1 << 20,
                  std::uint64_t spans_max = OwnMemory::spans_max_default) {
    auto made = make_layout({.fields = std::move(fields)});
    if (!made) return made.error().message;
    layout = std::move(*made);
    OwnMemory counted(bytes_max, spans_max);
    if (const Status status = flatten(layout, *batch, view, counted); !status) return status.error().message;
    bytes = counted.bytes();
    memory = std::make_unique<std::byte[]>(bytes);
    OwnMemory own(MutableBytes(memory.get(), bytes));
    if (const Status status = flatten(layout, *batch, view, own); !status) return status.error().message;
    return own.bytes() == bytes ? "" : "the passes differ";
  }
  template <class T>
  std::vector<T> values(std::size_t buffer) const {
    const BufferSource& source = view.buffers[buffer];
    std::vector<T> found(source.bytes / sizeof(T));
    if (!found.empty()) std::memcpy(found.data(), reinterpret_cast<const void*>(source.address), source.bytes);
    return found;
  }
  std::string text(std::size_t buffer) const {
    const std::vector<char> found = values<char>(buffer);
    return {found.begin(), found.end()};
  }
  bool is_own(std::size_t buffer) const {
    const auto* const at = reinterpret_cast<const std::byte*>(view.buffers[buffer].address);
    return at >= memory.get() && at < memory.get() + bytes;
  }
  using Offsets32 = std::vector<std::int32_t>;
  using Offsets64 = std::vector<std::int64_t>;

  Arrays arrays;
  Layout layout;
  BatchView view;
  std::unique_ptr<std::byte[]> memory;
  std::uint64_t bytes = 0;
};

TEST_F(Gather, ViewsOfTextBecomeOffsetsAndBytes) {
  const Texts texts({"ab", long_one, "", "hidden", long_two});
  const std::uint8_t validity = 0b10111;
  ASSERT_EQ(run({views}, arrays.batch(5, {arrays.add({5, 1}, texts.buffers(&validity))})), "");
  EXPECT_EQ(view.nodes[0], (NodeShape{5, 1}));
  EXPECT_EQ(values<std::uint8_t>(0), std::vector<std::uint8_t>{0b10111});
  EXPECT_EQ(values<std::int64_t>(1), (Offsets64{0, 2, 20, 20, 20, 41}));
  EXPECT_EQ(text(2), "ab" + long_one + long_two);
}

TEST_F(Gather, ASliceShowsItsOwnViews) {
  const Texts texts({"a", long_one, "b", "c"});
  const std::uint8_t validity = 0b1101;
  ASSERT_EQ(run({views}, arrays.batch(2, {arrays.add({3, 1, 1}, texts.buffers(&validity))}, 1)), "");
  EXPECT_EQ(view.nodes[0], (NodeShape{2, 0}));
  EXPECT_EQ(view.buffers[0], BufferSource{}) << "none of those shown is null";
  EXPECT_EQ(text(2), "bc");
  ASSERT_EQ(run({views}, arrays.batch(0, {arrays.add({3, 1, 1}, texts.buffers(&validity))}, 3)), "");
  EXPECT_EQ(view.nodes[0], (NodeShape{0, 0}));
}

TEST_F(Gather, AViewBeyondItsBuffersNamesColumnAndRow) {
  const auto error_of = [&](std::size_t at, std::int32_t value) {
    Texts texts({"ab", long_one, "c"});
    texts.set(1, at, value);
    const std::uint8_t validity = 0b110;
    return run({views}, arrays.batch(2, {arrays.add({3, 1}, texts.buffers(&validity))}, 1));
  };
  EXPECT_EQ(error_of(0, -1), "'t', row 0: a view of -1 bytes");
  EXPECT_EQ(error_of(0, 19), "'t', row 0: a view of 19 bytes at 0 of buffer 0, which has 18");
  EXPECT_EQ(error_of(0, INT32_MAX), "'t', row 0: a view of 2147483647 bytes at 0 of buffer 0, which has 18");
  EXPECT_EQ(error_of(8, 1), "'t', row 0: a view into buffer 1 of 1");
  EXPECT_EQ(error_of(8, -1), "'t', row 0: a view into buffer -1 of 1");
  EXPECT_EQ(error_of(12, 1), "'t', row 0: a view of 18 bytes at 1 of buffer 0, which has 18");
  EXPECT_EQ(error_of(12, -1), "'t', row 0: a view of 18 bytes at -1 of buffer 0, which has 18");
}

TEST_F(Gather, WhatANullViewSaysIsNotLookedAt) {
  Texts texts({long_one, "a"});
  texts.set(0, 8, 77);
  const std::uint8_t validity = 0b10;
  ASSERT_EQ(run({views}, arrays.batch(2, {arrays.add({2, 1}, texts.buffers(&validity))})), "");
  EXPECT_EQ(text(2), "a");
}

TEST_F(Gather, BuffersThatAreMissingAreNamed) {
  const Texts texts({long_one});
  const auto error_of = [&](std::vector<const void*> buffers) {
    return run({views}, arrays.batch(1, {arrays.add({1}, std::move(buffers))}));
  };
  EXPECT_EQ(error_of({nullptr, texts.bytes.data()}), "'t' has 2 buffers, a view of large_string has 3 or more");
  EXPECT_EQ(error_of({nullptr, texts.bytes.data(), nullptr}), "'t', row 0: a view into buffer 0 of 0");
  EXPECT_EQ(error_of({nullptr, texts.bytes.data(), nullptr, &texts.length}),
            "'t', row 0: a view of 18 bytes at 0 of buffer 0, which has 18");
  EXPECT_EQ(error_of({nullptr, texts.bytes.data(), texts.data.data(), nullptr}),
            "'t' has 1 values, but no views or no lengths of its buffers");
}

TEST_F(Gather, ListsInTheirOrderStayWhereTheirValuesAre) {
  const std::array<std::int32_t, 5> child{10, 11, 12, 13, 14};
  const std::array<std::int32_t, 3> begins{1, 3, 3}, sizes{2, 0, 1};
  ArrowArray* values_of = arrays.add({5}, {nullptr, child.data()});
  ArrowArray* lists = arrays.add({3}, {nullptr, begins.data(), sizes.data()}, {values_of});
  ASSERT_EQ(run({list_view(Type::list, number)}, arrays.batch(3, {lists})), "");
  EXPECT_EQ(values<std::int32_t>(1), (Offsets32{0, 2, 2, 3}));
  EXPECT_EQ(view.buffers[3].address, reinterpret_cast<std::uint64_t>(child.data() + 1));
  EXPECT_EQ(values<std::int32_t>(3), (Offsets32{11, 12, 13}));
}

TEST_F(Gather, ListsInAnyOrderAreCopiedWithAllBeneathThem) {
  const Texts texts({"a", "b", long_one, "d"});
  const std::uint8_t validity = 0b1011;  // value 2 is null
  const std::array<std::int64_t, 4> begins{2, 0, 99, 1}, sizes{2, 2, 99, 1};
  const std::uint8_t shown = 0b1011;  // list 2 is null
  ArrowArray* child = arrays.add({4, 1}, texts.buffers(&validity));
  ArrowArray* lists = arrays.add({4, 1}, {&shown, begins.data(), sizes.data()}, {child});
  ASSERT_EQ(run({list_view(Type::large_list, views)}, arrays.batch(4, {lists})), "");
  EXPECT_EQ(view.nodes[0], (NodeShape{4, 1}));
  EXPECT_EQ(values<std::int64_t>(1), (Offsets64{0, 2, 4, 4, 5}));
  EXPECT_EQ(view.nodes[1], (NodeShape{5, 1}));
  EXPECT_EQ(values<std::uint8_t>(2), std::vector<std::uint8_t>{0b11110});
  EXPECT_EQ(text(4), "dabb");
}

TEST_F(Gather, AListBeyondItsChildNamesColumnAndRow) {
  const std::array<std::int32_t, 4> child{};
  const auto error_of = [&](std::int32_t begin, std::int32_t size) {
    const std::array<std::int32_t, 3> begins{0, 1, begin}, sizes{1, 1, size};
    ArrowArray* lists =
        arrays.add({3}, {nullptr, begins.data(), sizes.data()}, {arrays.add({4}, {nullptr, child.data()})});
    return run({list_view(Type::list, number)}, arrays.batch(2, {lists}, 1));
  };
  EXPECT_EQ(error_of(2, 2), "");
  EXPECT_EQ(error_of(2, 3), "'l', row 1: a list of 3 values at 2 of its child, which has 4");
  EXPECT_EQ(error_of(-1, 1), "'l', row 1: a list of 1 values at -1 of its child, which has 4");
  EXPECT_EQ(error_of(1, -1), "'l', row 1: a list of -1 values at 1 of its child, which has 4");
  EXPECT_EQ(error_of(INT32_MAX, INT32_MAX),
            "'l', row 1: a list of 2147483647 values at 2147483647 of its child, which has 4");
}

TEST_F(Gather, RunsAreRepeated) {
  const std::array<std::int32_t, 3> ends{2, 5, 6}, given{7, 0, 9};
  const std::uint8_t validity = 0b101;
  ArrowArray* const column = arrays.add(
      {4, 0, 1}, {}, {arrays.add({3}, {nullptr, ends.data()}), arrays.add({3, 1}, {&validity, given.data()})});
  ASSERT_EQ(run({runs}, arrays.batch(4, {column})), "");
  EXPECT_EQ(view.nodes[0], (NodeShape{4, 3}));
  EXPECT_EQ(values<std::uint8_t>(0), std::vector<std::uint8_t>{0b0001});
  EXPECT_EQ(values<std::int32_t>(1), (Offsets32{7, 0, 0, 0}));
  ASSERT_EQ(run({runs}, arrays.batch(1, {column}, 3)), "");
  EXPECT_FALSE(is_own(1)) << "one value is shown where it is";
}

TEST_F(Gather, RunEndsMustGrow) {
  const std::array<std::int32_t, 3> given{7, 8, 9};
  const auto error_of = [&](std::array<std::int16_t, 3> ends, std::int64_t rows, std::int64_t first = 0) {
    Field short_runs = runs;
    short_runs.run_ends = {2};
    ArrowArray* const column = arrays.add(
        {rows + first}, {}, {arrays.add({3}, {nullptr, ends.data()}), arrays.add({3}, {nullptr, given.data()})});
    return run({short_runs}, arrays.batch(rows, {column}, first));
  };
  EXPECT_EQ(error_of({1, 2, 3}, 3), "");
  EXPECT_EQ(error_of({1, 2, 3}, 4), "'r' has 3 runs up to value 3, it shows 4");
  EXPECT_EQ(error_of({2, 2, 4}, 4), "'r': run 1 ends at value 2, the one before it at 2; run ends must grow");
  EXPECT_EQ(error_of({3, 2, 4}, 4), "'r': run 1 ends at value 2, the one before it at 3; run ends must grow");
  EXPECT_EQ(error_of({0, 2, 4}, 4), "") << "an empty run at the beginning shows nothing";
  EXPECT_EQ(error_of({1, 3, 2}, 2, 2), "'r': run 2 ends at value 2, the one before it at 3; run ends must grow");
}

TEST_F(Gather, RunsWithNullEndsOrTooFewValuesAreRefused) {
  const std::array<std::int32_t, 2> ends{1, 2}, given{7, 8};
  const std::uint8_t validity = 0b01;
  ArrowArray* null_ends =
      arrays.add({2}, {}, {arrays.add({2, 1}, {&validity, ends.data()}), arrays.add({2}, {nullptr, given.data()})});
  EXPECT_EQ(run({runs}, arrays.batch(2, {null_ends})), "'r': its run ends are no 2 integers without nulls");
  ArrowArray* short_values =
      arrays.add({2}, {}, {arrays.add({2}, {nullptr, ends.data()}), arrays.add({1}, {nullptr, given.data()})});
  EXPECT_EQ(run({runs}, arrays.batch(2, {short_values})), "'r' has 1 values, its parent shows 2 from 0 on");
  ArrowArray* no_children = arrays.add({2}, {}, {});
  EXPECT_EQ(run({runs}, arrays.batch(2, {no_children})), "'r' has 0 children, run_end_encoded has 2");
}

TEST_F(Gather, RunsOfRunsOfViews) {
  const std::array<std::int64_t, 2> outer_ends{3, 4};
  const std::array<std::int32_t, 1> inner_ends{2};
  const Texts texts({long_one});
  ArrowArray* inner =
      arrays.add({2}, {}, {arrays.add({1}, {nullptr, inner_ends.data()}), arrays.add({1}, texts.buffers())});
  ArrowArray* outer = arrays.add({4}, {}, {arrays.add({2}, {nullptr, outer_ends.data()}), inner});
  Field field = views;
  field.run_ends = {8, 4};
  ASSERT_EQ(run({field}, arrays.batch(4, {outer})), "");
  EXPECT_EQ(text(2), long_one + long_one + long_one + long_one);
}

// Views may show the same bytes any number of times, and one run may stand for any number of values.
TEST_F(Gather, WhatItTakesIsBounded) {
  std::vector<std::string> texts(1000, "");
  texts[0] = std::string(100'000, 'x');
  Texts given(texts);
  for (std::size_t row = 1; row < texts.size(); ++row) given.set(row, 0, 100'000);
  EXPECT_EQ(run({views}, arrays.batch(1000, {arrays.add({1000}, given.buffers())})),
            "'t': with views and runs expanded, the batch takes more than 1048576 bytes (staging_bytes_max)");
  const std::array<std::int64_t, 1> ends{INT64_MAX};
  const std::array<std::int32_t, 1> value{7};
  Field field = runs;
  field.run_ends = {8};
  ArrowArray* column =
      arrays.add({INT64_MAX}, {}, {arrays.add({1}, {nullptr, ends.data()}), arrays.add({1}, {nullptr, value.data()})});
  EXPECT_EQ(run({field}, arrays.batch(INT64_MAX, {column})),
            "'r': with views and runs expanded, the batch takes more than 1048576 bytes (staging_bytes_max)");
  // Lists of lists of nothing: neither takes bytes for a value.
  Field nulls{.name = "x", .type = Type::fixed_list, .children = {{.name = "y", .type = Type::null}}};
  nulls.width = 1000;
  std::vector<std::int32_t> begins(1000, 0), sizes(1000, 1'000'000);
  ArrowArray* many = arrays.add({1000}, {nullptr, begins.data(), sizes.data()},
                                {arrays.add({1'000'000}, {nullptr}, {arrays.add({1'000'000'000}, {})})});
  EXPECT_EQ(run({list_view(Type::list, nulls)}, arrays.batch(1000, {many})), "");
  EXPECT_EQ(view.nodes[2].length, 1'000'000'000'000);
}

// Each value is looked at, so a few bytes must not stand for any number of them.
TEST_F(Gather, WhatItLooksAtIsBounded) {
  const std::array<std::int64_t, 1> ends{std::int64_t{1} << 62};
  const Texts texts({""});
  const auto column = [&] {
    return arrays.add({ends[0]}, {}, {arrays.add({1}, {nullptr, ends.data()}), arrays.add({1}, texts.buffers())});
  };
  Field field = views;
  field.run_ends = {8};
  const std::string refused =
      "with views and runs expanded, the batch takes more than 1048576 bytes (staging_bytes_max)";
  EXPECT_EQ(run({field}, arrays.batch(ends[0], {column()})), "'t': " + refused);
  const std::int64_t begin = 0;
  ArrowArray* list = arrays.add({1}, {nullptr, &begin, ends.data()}, {column()});
  EXPECT_EQ(run({list_view(Type::large_list, field)}, arrays.batch(1, {list})), "'l.t': " + refused);
}

TEST_F(Gather, RunsAreBoundedByTheirNumberNotByTheBytesOfTheirValues) {
  constexpr std::int64_t count = 100'000;  // at 24 bytes each: more than may be laid out
  std::vector<std::int32_t> ends(count);
  std::iota(ends.begin(), ends.end(), 1);
  for (std::int32_t& end : ends) end *= 2;
  const std::vector<std::int8_t> numbers(count, 7);
  const auto column = [&] {
    return arrays.add({2 * count}, {},
                      {arrays.add({count}, {nullptr, ends.data()}), arrays.add({count}, {nullptr, numbers.data()})});
  };
  const Field field{.name = "r", .type = Type::int8, .run_ends = {4}};
  EXPECT_EQ(run({field}, arrays.batch(2 * count, {column()})), "");
  EXPECT_EQ(values<std::int8_t>(1), std::vector<std::int8_t>(2 * count, 7));
  EXPECT_EQ(run({field}, arrays.batch(2 * count, {column()}), 1 << 20, count - 1),
            "'r': more than 99999 runs, or lists that do not lie one behind the other; send fewer rows at a time");
}

TEST_F(Gather, ListsOfMoreValuesThanTheirOffsetsCountAreRefused) {
  std::vector<std::int32_t> begins(3, 0), sizes(3, 1 << 30);
  ArrowArray* many = arrays.add({3}, {nullptr, begins.data(), sizes.data()}, {arrays.add({1 << 30}, {})});
  EXPECT_EQ(run({list_view(Type::list, {.name = "x", .type = Type::null})}, arrays.batch(3, {many})),
            "'l', row 1: 2147483648 values up to it, more than 2147483647 that its offsets count");
}

TEST_F(Gather, UnionsBeneathRunsKeepTheirValues) {
  const std::array<std::int8_t, 3> codes{5, 0, 5};
  const std::array<std::int32_t, 3> places{0, 0, 1}, ends{2, 3, 4};
  const std::array<std::int32_t, 2> numbers{10, 20};
  const Texts texts({long_one});
  Field field{.name = "u", .type = Type::dense_union, .children = {views, number}, .type_codes = {0, 5}};
  field.run_ends = {4};
  const auto column = [&] {
    ArrowArray* mixed = arrays.add({3}, {codes.data(), places.data()},
                                   {arrays.add({1}, texts.buffers()), arrays.add({2}, {nullptr, numbers.data()})});
    return arrays.add({4}, {}, {arrays.add({3}, {nullptr, ends.data()}), mixed});
  };
  ASSERT_EQ(run({field}, arrays.batch(4, {column()})), "");
  EXPECT_EQ(values<std::int8_t>(0), (std::vector<std::int8_t>{5, 5, 0, 5}));
  EXPECT_EQ(values<std::int32_t>(1), (Offsets32{0, 1, 0, 2}));
  EXPECT_EQ(text(4), long_one);
  EXPECT_EQ(values<std::int32_t>(6), (Offsets32{10, 10, 20}));
  field.type_codes = {0, 4};
  EXPECT_EQ(run({field}, arrays.batch(4, {column()})), "'u', row 0: the type code 5, which none of its types has");
}

TEST_F(Gather, MemoryThatGrewMeanwhileIsNoticed) {
  Texts texts({long_one, "a"});
  const ArrowArray* batch = arrays.batch(2, {arrays.add({2}, texts.buffers())});
  ASSERT_EQ(run({views}, batch), "");
  texts.set(1, 0, 12);
  OwnMemory own(MutableBytes(memory.get(), bytes));
  const Status status = flatten(layout, *batch, view, own);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "'t' grew while it was copied");
}

}  // namespace
}  // namespace offpath::frame
