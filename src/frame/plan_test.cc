#include "frame/plan.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <random>

#include "frame/parse.h"
#include "testing/frame/random_batches.h"
#include "testing/frame/schemas.h"

namespace {
std::atomic<long> allocations{0};
}

// Counts the program's allocations, for tests that expect none. Not inlined, or GCC takes free for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace offpath::frame {
namespace {

std::shared_ptr<const Template> template_of(std::vector<Field> fields, std::uint32_t alignment = page_alignment) {
  auto form = make_template({.fields = std::move(fields)}, alignment);
  EXPECT_TRUE(form) << form.error().message;
  return *form;
}

std::string plan_error(const Template& form, const BatchView& view, PlanLimits limits = {}) {
  Plan plan;
  const Status status = make_plan(form, view, limits, plan);
  return status ? "" : status.error().message;
}

// Sixteen columns as a simulation has them.
std::shared_ptr<const Template> sixteen_columns() {
  std::vector<Field> fields;
  for (int i = 0; i < 16; ++i) fields.push_back({.name = fmt::format("c{}", i), .type = Type::float64});
  return template_of(std::move(fields));
}

TEST(Plan, FixedWidthColumnsAreOnePullEach) {
  const auto form = sixteen_columns();
  BatchView view;
  std::vector<PlainColumn> columns;
  for (std::uint64_t i = 0; i < 16; ++i) columns.push_back({.address = 0x10000 + i * 0x1000});
  ASSERT_TRUE(flatten_plain(form->layout, 512, columns, view));
  Plan plan;
  ASSERT_TRUE(make_plan(*form, view, {}, plan));
  EXPECT_EQ(unsound(*form, plan), "");
  ASSERT_EQ(plan.pulls.size(), 16u);
  for (std::uint64_t i = 0; i < 16; ++i) {
    EXPECT_EQ(plan.pulls[i].address, columns[i].address);
    EXPECT_EQ(plan.pulls[i].target, plan.parts[0].body + i * 4096);
  }
  EXPECT_EQ(plan.parts[0].body, 4096u);
  EXPECT_EQ(plan.frame_bytes, 4096u + 16 * 4096 + 8);
  EXPECT_EQ(plan.pulled_bytes, 16u * 4096);
  EXPECT_TRUE(plan.steps.empty() && plan.gaps.empty() && plan.scratch_bytes == 0);
}

TEST(Plan, AllocatesNothingForASecondBatch) {
  const auto form = template_of(every_nesting().fields, ipc_alignment);
  std::mt19937 random(3);
  auto pick = [&](std::uint64_t low, std::uint64_t high) { return low + random() % (high - low + 1); };
  RandomBatch batch = BatchMaker(form->layout, pick).make(50);
  Plan plan;
  ASSERT_TRUE(make_plan(*form, batch.view, {}, plan));
  std::vector<std::byte> frame(plan.frame_bytes);
  std::vector<std::byte> scratch(plan.scratch_bytes);
  const long before = allocations;
  const bool planned = make_plan(*form, batch.view, {}, plan).has_value();
  write_head(*form, plan, frame);
  const long after = allocations;
  EXPECT_TRUE(planned);
  EXPECT_EQ(after - before, 0);
}

TEST(Plan, PlainColumnsAllocateNothingEither) {
  const auto form = sixteen_columns();
  std::vector<PlainColumn> columns(16, {.address = 0x1000});
  BatchView view;
  Plan plan;
  ASSERT_TRUE(flatten_plain(form->layout, 100, columns, view) && make_plan(*form, view, {}, plan));
  const long before = allocations;
  const bool good = flatten_plain(form->layout, 77, columns, view) && make_plan(*form, view, {}, plan);
  EXPECT_EQ(allocations - before, 0);
  EXPECT_TRUE(good);
}

TEST(Plan, ColumnsOfOneRecordArrayAreReadOnce) {
  std::vector<Field> fields;
  for (const char* name : {"x", "vx", "y", "vy", "z", "vz"}) fields.push_back({.name = name, .type = Type::float64});
  const auto form = template_of(fields, ipc_alignment);
  BatchView view;
  std::vector<PlainColumn> columns;
  for (std::uint64_t i = 0; i < 3; ++i) {
    columns.push_back({.address = 0x10010 - i * 8, .stride_bytes = 24});  // z, y, x of one array
    columns.push_back({.address = 0x90000 + i * 8, .stride_bytes = 24});
  }
  ASSERT_TRUE(flatten_plain(form->layout, 100, columns, view));
  Plan plan;
  ASSERT_TRUE(make_plan(*form, view, {}, plan));
  EXPECT_EQ(unsound(*form, plan), "");
  ASSERT_EQ(plan.blocks.size(), 2u);
  EXPECT_EQ(plan.blocks[0].address, 0x10000u);
  EXPECT_EQ(plan.blocks[0].bytes, 2400u);
  EXPECT_EQ(plan.blocks[1].address, 0x90000u);
  EXPECT_EQ(plan.lanes[0].offset_bytes, 16u);
  EXPECT_EQ(plan.lanes[2].offset_bytes, 0u);
  EXPECT_EQ(plan.pulled_bytes, 4800u);
}

TEST(Plan, ColumnsThatDoNotFitInOneRowAreReadApart) {
  const auto form =
      template_of({{.name = "a", .type = Type::int64}, {.name = "b", .type = Type::int64}}, ipc_alignment);
  for (const std::uint64_t apart : {16, 17}) {
    BatchView view;
    const PlainColumn columns[] = {{.address = 0x10000, .stride_bytes = 24},
                                   {.address = 0x10000 + apart, .stride_bytes = 24}};
    ASSERT_TRUE(flatten_plain(form->layout, 5, columns, view));
    Plan plan;
    ASSERT_TRUE(make_plan(*form, view, {}, plan));
    EXPECT_EQ(unsound(*form, plan), "");
    EXPECT_EQ(plan.blocks.size(), apart == 16 ? 1u : 2u);
  }
}

TEST(Plan, LongRecordsAreSeveralBlocksWhoseRowsAreReadAlone) {
  std::vector<Field> fields;
  std::vector<PlainColumn> columns;
  constexpr std::uint64_t values = 3000;  // 24,000 bytes a record, all of them sent
  for (std::uint64_t i = 0; i < values; ++i) {
    fields.push_back({.name = fmt::format("v{}", i), .type = Type::float64});
    columns.push_back({.address = 0x100000 + i * 8, .stride_bytes = values * 8});
  }
  const auto form = template_of(fields, ipc_alignment);
  BatchView view;
  ASSERT_TRUE(flatten_plain(form->layout, 10, columns, view));
  Plan plan;
  ASSERT_TRUE(make_plan(*form, view, {}, plan));
  EXPECT_EQ(unsound(*form, plan), "");
  ASSERT_EQ(plan.blocks.size(), 2u);
  EXPECT_EQ(plan.blocks[0].row_bytes, row_bytes_max);
  for (const Block& block : plan.blocks) EXPECT_TRUE(block.apart());
  EXPECT_EQ(plan.pulled_bytes, 10 * values * 8) << "no byte twice, none for nothing";
}

TEST(Plan, ColumnsOfDifferentMemoryShareNoRecordsThoughTheirAddressesAreNear) {
  std::vector<Field> fields;
  for (const char* const name : {"x", "y", "z", "w"}) fields.push_back({.name = name, .type = Type::float64});
  const auto form = template_of(fields, ipc_alignment);
  const std::vector<PlainColumn> columns{{.address = 0, .stride_bytes = 16, .memory = 1},
                                         {.address = 8, .stride_bytes = 16, .memory = 1},
                                         {.address = 0, .stride_bytes = 16, .memory = 2},
                                         {.address = 8, .memory = 2}};
  BatchView view;
  ASSERT_TRUE(flatten_plain(form->layout, 10, columns, view));
  Plan plan;
  ASSERT_TRUE(make_plan(*form, view, {}, plan));
  EXPECT_EQ(unsound(*form, plan), "");
  ASSERT_EQ(plan.blocks.size(), 2u);
  EXPECT_EQ(plan.blocks[0].memory, 1u);
  EXPECT_EQ(plan.blocks[0].row_bytes, 16u);
  EXPECT_EQ(plan.blocks[1].memory, 2u);
  EXPECT_EQ(plan.blocks[1].row_bytes, 8u);
  ASSERT_EQ(plan.pulls.size(), 1u);
  EXPECT_EQ(plan.pulls[0].memory, 2u);
  EXPECT_EQ(plan.pulls[0].address, 8u);
  EXPECT_EQ(flatten_plain(form->layout, 10, std::vector<PlainColumn>(4), view).error().message,
            "the address of 'x' is null, for 10 rows");
}

TEST(Plan, ValidityWithoutNullsIsNotRead) {
  const auto form = template_of({{.name = "a", .type = Type::int8}});
  const BatchView view{.rows = 16, .nodes = {{16, 0}}, .buffers = {{64, 2}, {128, 16}}};
  Plan plan;
  ASSERT_TRUE(make_plan(*form, view, {}, plan));
  ASSERT_EQ(plan.pulls.size(), 1u);
  EXPECT_EQ(plan.pulls[0].address, 128u);
  EXPECT_EQ(plan.buffers[0].bytes, 0u);
}

TEST(Plan, AnEmptyListHasOneOffset) {
  const auto form = template_of({{.name = "t", .type = Type::large_utf8}}, ipc_alignment);
  Plan plan;
  ASSERT_TRUE(make_plan(*form, {.rows = 0, .nodes = {{}}, .buffers = {{}, {}, {}}}, {}, plan));
  EXPECT_EQ(unsound(*form, plan), "");
  EXPECT_EQ(plan.buffers[1].bytes, 8u);
  std::vector<std::byte> frame(plan.frame_bytes, std::byte{0xEE});
  write_head(*form, plan, frame);
  EXPECT_EQ(load<std::uint64_t>(frame.data() + plan.buffers[1].offset), 0u);
}

struct Refused {
  BatchView view;
  std::string message;
};

TEST(Plan, NumbersThatContradictEachOtherAreNamed) {
  const auto form =
      template_of({{.name = "a", .type = Type::int32, .nullable = false}, {.name = "t", .type = Type::utf8}});
  const BatchView good{.rows = 10, .nodes = {{10, 0}, {10, 3}}, .buffers = {{}, {64, 40}, {64, 2}, {64, 44}, {64, 99}}};
  EXPECT_EQ(plan_error(*form, good), "");
  std::vector<Refused> all;
  const auto add = [&](std::string message, auto change) {
    all.push_back({good, std::move(message)});
    change(all.back().view);
  };
  add("the batch has -1 rows, 0 to 100 are allowed", [](BatchView& v) { v.rows = -1; });
  add("the batch has 101 rows, 0 to 100 are allowed", [](BatchView& v) { v.rows = 101; });
  add("the batch has 1 nodes and 5 buffers, its schema 2 and 5", [](BatchView& v) { v.nodes.pop_back(); });
  add("'a' has length 9, expected 10", [](BatchView& v) { v.nodes[0].length = 9; });
  add("'a' has 1 nulls, its schema allows none", [](BatchView& v) { v.nodes[0].null_count = 1; });
  add("'t' has 11 nulls in 10 values", [](BatchView& v) { v.nodes[1].null_count = 11; });
  add("'t' has -2 nulls in 10 values", [](BatchView& v) { v.nodes[1].null_count = -2; });
  add("'t' has 3 nulls, but no validity bitmap", [](BatchView& v) { v.buffers[2] = {}; });
  add("'t' (validity) has 1 bytes, 10 values need 2", [](BatchView& v) { v.buffers[2].bytes = 1; });
  add("'t' (validity) has 2 bytes, 10 values need 3", [](BatchView& v) { v.buffers[2].bit_offset = 7; });
  add("'t' (validity) begins at bit 8, 0 to 7 are allowed, and reserved bytes are 0",
      [](BatchView& v) { v.buffers[2].bit_offset = 8; });
  add("'t' (validity) has stride 2 and bit offset 0, expected stride 0",
      [](BatchView& v) { v.buffers[2].stride_bytes = 2; });
  add("'a' (values) has 39 bytes, 10 values need 40", [](BatchView& v) { v.buffers[1].bytes = 39; });
  add("'a' (values) has stride 0 and bit offset 1, expected 0 and 0",
      [](BatchView& v) { v.buffers[1].bit_offset = 1; });
  add("'a' (values) has values of 4 bytes, 3 apart; at least their size is allowed",
      [](BatchView& v) { v.buffers[1].stride_bytes = 3; });
  add("'a' (values) has 40 bytes, 10 values need 76", [](BatchView& v) { v.buffers[1].stride_bytes = 8; });
  add("'a' (values): no memory has 40 bytes at address 0x0", [](BatchView& v) { v.buffers[1].address = 0; });
  add("'a' (values): no memory has 40 bytes at address 0xfffffffffffffff0",
      [](BatchView& v) { v.buffers[1].address = 0xFFFFFFFFFFFFFFF0; });
  add("'t' (offsets) has 40 bytes, 10 values need 44", [](BatchView& v) { v.buffers[3].bytes = 40; });
  add("'t' (data): the frame has 16384 bytes without its 1000000, at most 65536 in all are allowed",
      [](BatchView& v) { v.buffers[4].bytes = 1000000; });
  for (const Refused& refused : all) {
    EXPECT_EQ(plan_error(*form, refused.view, {.rows_max = 100, .frame_bytes_max = 65536}), refused.message);
  }
}

TEST(Plan, HugeNumbersAreRefusedNotWrapped) {
  const auto form = template_of({{.name = "l",
                                  .type = Type::fixed_list,
                                  .width = 1 << 30,
                                  .children = {{.name = "i", .type = Type::decimal256, .precision = 5}}}});
  BatchView view{
      .rows = std::int64_t{1} << 40, .nodes = {{std::int64_t{1} << 40, 0}, {0, 0}}, .buffers = {{}, {}, {64, 0}}};
  EXPECT_EQ(plan_error(*form, view), "'l' has 1099511627776 lists of 1073741824 values");
  view.rows = view.nodes[0].length = std::int64_t{1} << 30;
  view.nodes[1].length = std::int64_t{1} << 60;
  EXPECT_EQ(plan_error(*form, view), "'l.i' (values) has 1152921504606846976 values of 32 bytes");
}

TEST(Plan, ASchemaTooLargeForTheFrameIsRefused) {
  const auto form = template_of({{.name = "n", .type = Type::null}});
  EXPECT_EQ(plan_error(*form, {.rows = 0, .nodes = {{}}, .buffers = {}}, {.frame_bytes_max = 100}),
            "the frame has 4104 bytes, at most 100 are allowed");
}

TEST(Plan, MemoryThatChangedAfterItWasAnnouncedIsSeen) {
  const auto form = template_of(
      {{.name = "t", .type = Type::utf8}, {.name = "n", .type = Type::int8, .nullable = false}}, ipc_alignment);
  std::int32_t offsets[] = {1, 3, 6};
  const std::uint8_t bitmap = 0x02;
  const auto address = [](const auto& object) { return reinterpret_cast<std::uint64_t>(&object); };
  const BatchView view{
      .rows = 2,
      .nodes = {{2, 0}, {2, unknown_nulls}},
      .buffers = {{}, {address(offsets), 12}, {address("abcde"), 5}, {address(bitmap), 1}, {address("xy"), 2}}};
  Plan plan;
  ASSERT_TRUE(make_plan(*form, view, {}, plan));
  std::vector<std::byte> frame(plan.frame_bytes);
  offsets[2] = 7;
  EXPECT_EQ(build_frame(*form, plan, frame).error().message,
            "the offsets of 't' run from 1 to 7, but 5 bytes were announced: the memory has changed");
  offsets[2] = 6;
  EXPECT_EQ(build_frame(*form, plan, frame).error().message, "'n' has 1 nulls, its schema allows none");
}

TEST(Plan, ContentsOfStrangersCanBeChecked) {
  const auto form = template_of(
      {{.name = "t", .type = Type::utf8}, {.name = "d", .type = Type::int8, .dictionary = {{.type = Type::int8}}}},
      ipc_alignment);
  std::int32_t offsets[] = {0, 3, 5};
  std::int8_t indices[] = {0, 1};
  std::uint8_t bitmap = 0x03;
  const auto address = [](const auto& object) { return reinterpret_cast<std::uint64_t>(&object); };
  const BatchView view{.rows = 2,
                       .nodes = {{2, 0}, {2, unknown_nulls}, {2, 0}},
                       .buffers = {{},
                                   {address(offsets), 12},
                                   {address("abcde"), 5},
                                   {address(bitmap), 1},
                                   {address(indices), 2},
                                   {},
                                   {address("xy"), 2}}};
  Plan plan;
  std::vector<std::byte> frame;
  const auto verdict = [&]() -> std::string {
    EXPECT_TRUE(make_plan(*form, view, {}, plan));
    frame.assign(plan.frame_bytes, std::byte{0});
    EXPECT_TRUE(build_frame(*form, plan, frame));
    const Status status = check_contents(*form, plan, frame);
    return status ? "" : status.error().message;
  };
  EXPECT_EQ(verdict(), "");
  offsets[1] = 6;
  EXPECT_EQ(verdict(), "the offsets of 't' do not ascend from 0 to 5");
  offsets[1] = 3;
  for (const std::int8_t index : {std::int8_t{2}, std::int8_t{-1}}) {
    indices[1] = index;
    bitmap = 0x03;
    EXPECT_EQ(verdict(), "'d' has an index outside its dictionary of 2 values");
    bitmap = 0x01;  // a null's index means nothing
    EXPECT_EQ(verdict(), "");
  }
}

TEST(Plan, UnionsShowTheirChildrenAlone) {
  const Field number{.name = "n", .type = Type::int32}, flag{.name = "f", .type = Type::int8};
  const auto form = template_of(
      {{.name = "u", .type = Type::dense_union, .children = {number, flag}, .type_codes = {0, 9}}}, ipc_alignment);
  const auto address = [](const auto& object) { return reinterpret_cast<std::uint64_t>(&object); };
  std::int8_t codes[] = {0, 9, 9};
  std::int32_t places[] = {1, 0, 0};
  const std::int32_t numbers[] = {5, 6};
  const std::int8_t flags[] = {1};
  BatchView view{
      .rows = 3,
      .nodes = {{3, 0}, {2, 0}, {1, 0}},
      .buffers = {{address(codes), 3}, {address(places), 12}, {}, {address(numbers), 8}, {}, {address(flags), 1}}};
  Plan plan;
  std::vector<std::byte> frame;
  const auto verdict = [&]() -> std::string {
    if (const Status planned = make_plan(*form, view, {}, plan); !planned) return planned.error().message;
    frame.assign(plan.frame_bytes, std::byte{0});
    const Status status = build_frame(*form, plan, frame);
    return status ? "" : status.error().message;
  };
  EXPECT_EQ(verdict(), "");
  codes[2] = 1;
  EXPECT_EQ(verdict(), "'u', row 2: the type code 1, which none of its types has");
  codes[2] = -9;
  EXPECT_EQ(verdict(), "'u', row 2: the type code -9, which none of its types has");
  codes[2] = 9;
  for (const std::int32_t place : {1, -1}) {
    places[2] = place;
    EXPECT_EQ(verdict(), fmt::format("'u', row 2: the offset {} in a child of 1 values", place));
  }
  places[2] = 0;
  codes[1] = 0;
  EXPECT_EQ(verdict(), "'u', row 1: the offset 0 behind 1 in the same child, whose offsets must not fall");
  codes[1] = 9;
  view.nodes[0].null_count = 1;
  EXPECT_EQ(verdict(), "'u' has 1 nulls; those of a union are in its children");
  view.nodes[0].null_count = 0;
  view.buffers[0].bytes = 2;
  EXPECT_EQ(verdict(), "'u' (type codes) has 2 bytes, 3 values need 3");
  view.buffers[0].bytes = 3;
  view.buffers[1].stride_bytes = 8;
  EXPECT_EQ(verdict(), "'u' (offsets) has stride 8 and bit offset 0, expected 0 and 0");
}

TEST(Plan, ChildrenOfASparseUnionAreAsLongAsIt) {
  const auto form = template_of(
      {{.name = "u", .type = Type::sparse_union, .children = {{.name = "n", .type = Type::int8}}, .type_codes = {0}}});
  EXPECT_EQ(plan_error(*form, {.rows = 3, .nodes = {{3, 0}, {2, 0}}, .buffers = {{64, 3}, {}, {64, 2}}}),
            "'u.n' has length 2, expected 3");
}

// The expected contents of one buffer of the frame, computed one value at a time.
void expect_buffer(const Layout& layout, const BatchView& view, const Plan& plan, const std::byte* frame,
                   std::uint32_t index) {
  const BufferSource& source = view.buffers[index];
  const BufferPlace& place = plan.buffers[index];
  const NodeLayout& node = layout.nodes[layout.buffers[index].node];
  const auto length = static_cast<std::uint64_t>(plan.nodes[layout.buffers[index].node].length);
  if (place.bytes == 0 || length == 0) return;
  const auto* from = reinterpret_cast<const std::byte*>(source.address);
  const std::byte* to = frame + place.offset;
  const auto bit = [](const std::byte* bits, std::uint64_t at) {
    return (std::to_integer<unsigned>(bits[at / 8]) >> (at % 8)) & 1U;
  };
  switch (layout.buffers[index].kind) {
    case BufferKind::validity:
    case BufferKind::bits:
      for (std::uint64_t i = 0; i < length; ++i) {
        const unsigned expected =
            source.stride_bytes != 0 ? from[i * source.stride_bytes] != std::byte{0} : bit(from, i + source.bit_offset);
        ASSERT_EQ(bit(to, i), expected) << i;
      }
      return;
    case BufferKind::values: {
      const std::uint64_t stride = source.stride_bytes != 0 ? source.stride_bytes : node.value_bytes;
      for (std::uint64_t i = 0; i < length; ++i) {
        ASSERT_EQ(std::memcmp(to + i * node.value_bytes, from + i * stride, node.value_bytes), 0) << i;
      }
      return;
    }
    case BufferKind::offsets32:
      for (std::uint64_t i = 0; i <= length; ++i) {
        ASSERT_EQ(load<std::int32_t>(to + i * 4), load<std::int32_t>(from + i * 4) - load<std::int32_t>(from)) << i;
      }
      return;
    case BufferKind::offsets64:
      for (std::uint64_t i = 0; i <= length; ++i) {
        ASSERT_EQ(load<std::int64_t>(to + i * 8), load<std::int64_t>(from + i * 8) - load<std::int64_t>(from)) << i;
      }
      return;
    case BufferKind::data:
    case BufferKind::type_ids:
    case BufferKind::places:
      ASSERT_EQ(place.bytes, source.bytes);
      ASSERT_EQ(std::memcmp(to, from, place.bytes), 0);
      return;
  }
}

TEST(Plan, RandomBatchesOfRandomSchemasArriveAsTheyWere) {
  for (unsigned seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    auto pick = [&](std::uint64_t low, std::uint64_t high) { return low + random() % (high - low + 1); };
    const Schema schema = random_schema(pick);
    const std::uint32_t alignments[] = {8, 64, 4096};
    const auto made = make_template(schema, alignments[seed % 3]);
    ASSERT_TRUE(made) << made.error().message;
    const Template& form = **made;
    const RandomBatch batch =
        BatchMaker(form.layout, pick).make(static_cast<std::int64_t>(pick(0, seed % 10 == 0 ? 600 : 40)));

    Plan plan;
    const Status planned = make_plan(form, batch.view, {}, plan);
    ASSERT_TRUE(planned) << planned.error().message;
    ASSERT_EQ(unsound(form, plan), "");
    std::vector<std::byte> frame(plan.frame_bytes);
    const Status built = build_frame(form, plan, frame);
    ASSERT_TRUE(built) << built.error().message;
    EXPECT_TRUE(check_contents(form, plan, frame));
    for (std::uint32_t i = 0; i < form.layout.buffers.size(); ++i) {
      ASSERT_NO_FATAL_FAILURE(expect_buffer(form.layout, batch.view, plan, frame.data(), i)) << "buffer " << i;
    }

    const auto parsed = parse_frame(frame);
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(read_schema(frame, *parsed), schema);
    std::int64_t rows = -1;
    std::vector<NodeShape> nodes;
    std::vector<BufferPlace> buffers;
    const Status read = read_batch(form.layout, frame, *parsed, rows, nodes, buffers);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(rows, plan.rows);
    EXPECT_EQ(nodes, plan.nodes);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      EXPECT_EQ(buffers[i].offset, plan.buffers[i].offset);
      EXPECT_EQ(buffers[i].bytes, plan.buffers[i].bytes);
    }
  }
}

}  // namespace
}  // namespace offpath::frame
