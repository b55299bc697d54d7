#include "sift/tracks/compaction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "sift/split/particles.h"

namespace offpath::sift {
namespace {

using frame::Type;

FrameMemory memory() { return {BufferCache::make({}), 7}; }

Piece piece_of(const RowForm& form, FramePtr frame, std::vector<StepRun> runs) {
  auto view = form.view({frame->buffer.data(), frame->bytes});
  OFP_ASSERT(view.has_value());
  return {std::move(frame), std::move(*view), std::move(runs)};
}

TEST(RowForm, TakesRowsOfFixedWidth) {
  frame::Schema schema = particle_schema();
  schema.fields.push_back(
      {.name = "u", .type = Type::fixed_list, .width = 3, .children = {{.name = "item", .type = Type::float64}}});
  const auto form = RowForm::make(schema, "id");
  ASSERT_TRUE(form) << form.error().message;
  EXPECT_EQ((*form)->row_bytes(), 37u + 24u);
  const FrameMemory from = memory();
  const auto made = (*form)->make_frame(1000, from);
  ASSERT_TRUE(made);
  for (const std::byte* column : made->columns) EXPECT_EQ((column - made->frame->buffer.data()) % page_bytes, 0);
  EXPECT_LE(made->frame->bytes, 1000 * 61 + (*form)->overhead_bytes());
  const auto view = (*form)->view({made->frame->buffer.data(), made->frame->bytes});
  ASSERT_TRUE(view) << view.error().message;
  for (std::size_t i = 0; i < made->columns.size(); ++i) EXPECT_EQ(view->columns[i].values, made->columns[i]);
  EXPECT_EQ(view->rows, 1000u);
}

TEST(RowForm, EmptyFramesAreFrames) {
  const auto form = RowForm::make(particle_schema(), "id").value();
  const auto made = form->make_frame(0, memory());
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(form->view({made->frame->buffer.data(), made->frame->bytes}).value().rows, 0u);
}

TEST(RowForm, WhatItRefusesIsNamed) {
  const auto refused = [](frame::Schema schema) {
    const auto form = RowForm::make(schema, "id");
    return form ? std::string("taken") : form.error().message;
  };
  const auto with = [](frame::Field field) {
    frame::Schema schema = particle_schema();
    schema.fields.push_back(std::move(field));
    return schema;
  };
  frame::Schema renamed = particle_schema();
  renamed.fields[0].name = "number";
  EXPECT_NE(refused(renamed).find("no column 'id' with identifiers; there are: number, x"), std::string::npos)
      << refused(renamed);
  EXPECT_NE(refused(with({.name = "id", .type = Type::int32})).find("both called 'id'"), std::string::npos);
  frame::Schema text = particle_schema();
  text.fields[0].type = Type::float64;
  EXPECT_NE(refused(text).find("the identifier 'id' is float64"), std::string::npos);
  EXPECT_NE(refused(with({.name = "name", .type = Type::utf8})).find("'name' is string"), std::string::npos);
  EXPECT_NE(refused(with({.name = "on", .type = Type::boolean})).find("'on'"), std::string::npos);
  EXPECT_NE(refused(with({.name = "kind", .type = Type::int8, .dictionary = {{.type = Type::utf8}}})).find("'kind'"),
            std::string::npos);
}

TEST(RowForm, NamesOfListChildrenAndNullabilityDoNotMatter) {
  const FrameMemory from = memory();
  const auto form_of = [](const char* child, Type type) {
    frame::Schema schema = particle_schema();
    frame::Field item{.name = child, .type = type, .nullable = child[0] != 0};
    schema.fields.push_back({.name = "u", .type = Type::fixed_list, .width = 3, .children = {item}});
    return RowForm::make(schema, "id").value();
  };
  const auto form = form_of("item", Type::float64);
  for (const char* child : {"item", "", "element"}) {
    const auto made = form_of(child, Type::float64)->make_frame(10, from).value();
    const auto viewed = form->view({made.frame->buffer.data(), made.frame->bytes});
    EXPECT_TRUE(viewed) << viewed.error().message;
  }
  const auto made = form_of("item", Type::int64)->make_frame(10, from).value();
  EXPECT_FALSE(form->view({made.frame->buffer.data(), made.frame->bytes}));
}

TEST(RowForm, AnotherSchemaAndNullsAreRefused) {
  const FrameMemory from = memory();
  const auto form = RowForm::make(particle_schema(), "id").value();
  frame::Schema other_schema = particle_schema();
  other_schema.fields[3].type = Type::float64;
  const auto other = RowForm::make(other_schema, "id").value()->make_frame(10, from).value();
  const auto viewed = form->view({other.frame->buffer.data(), other.frame->bytes});
  ASSERT_FALSE(viewed);
  EXPECT_NE(viewed.error().message.find("column 3 is 'z' float64, but in the pool it is 'z' float32"),
            std::string::npos)
      << viewed.error().message;

  // A frame whose identifiers have a null, as a program could send it.
  frame::BatchView batch;
  frame::Plan plan;
  const auto shape = frame::make_template(particle_schema(), frame::page_alignment).value();
  const std::vector<std::uint64_t> values(100);
  const std::vector<std::uint8_t> validity(100, 0xFE);
  std::vector<frame::PlainColumn> columns(9, {.address = reinterpret_cast<std::uint64_t>(values.data())});
  columns[0].validity = reinterpret_cast<std::uint64_t>(validity.data());
  columns[0].null_count = 2;
  ASSERT_TRUE(frame::flatten_plain(shape->layout, 10, columns, batch));
  ASSERT_TRUE(frame::make_plan(*shape, batch, {}, plan));
  std::vector<std::byte> bytes(plan.frame_bytes);
  frame::write_head(*shape, plan, bytes);
  const auto nulls = form->view(bytes);
  ASSERT_FALSE(nulls);
  EXPECT_NE(nulls.error().message.find("the identifier 'id' has 2 nulls"), std::string::npos) << nulls.error().message;
  EXPECT_FALSE(form->view(Bytes(bytes).first(100)));
}

TEST(Compaction, EveryRowIsInItsPartOnceWithItsStep) {
  const FrameMemory from = memory();
  std::mt19937_64 random(3);
  for (const bool narrow : {false, true}) {
    frame::Schema schema = particle_schema();
    if (narrow) schema.fields[0].type = Type::int32;
    const auto form = RowForm::make(schema, "id").value();
    std::vector<Piece> pieces;
    std::map<std::pair<std::uint64_t, std::int64_t>, int> expected;
    for (const std::int64_t step : {7, 3, 7, 5, 3}) {
      std::vector<std::uint64_t> ids(random() % 5000);
      for (std::uint64_t& id : ids) {
        id = random() % 1000 * (narrow ? 1 : 0x1'0000'0001);
        ++expected[{id, step}];
      }
      if (!ids.empty()) pieces.push_back(piece_of(*form, particle_frame(*form, ids, step, from), {{step, ids.size()}}));
    }
    const SplitBits bits{2, 3};
    const auto parts = split_pieces(*form, pieces, bits, from);
    ASSERT_TRUE(parts) << parts.error().message;
    std::uint64_t bytes = 0, rows = 0;
    for (const Part& part : *parts) {
      bytes += part.frame->buffer.capacity();
      const auto view = form->view({part.frame->buffer.data(), part.frame->bytes});
      ASSERT_TRUE(view) << view.error().message;
      EXPECT_EQ(part.crc32c_of_identifiers, crc32c({view->ids.values, view->rows * view->ids.value_bytes}));
      EXPECT_LE(part.runs.size(), 3u) << "runs of one step are one";
      std::uint64_t row = 0;
      for (std::size_t run = 0; run < part.runs.size(); ++run) {
        if (run > 0) {
          EXPECT_LT(part.runs[run - 1].step, part.runs[run].step);
        }
        for (const std::uint64_t end = row + part.runs[run].rows; row < end; ++row, ++rows) {
          std::uint64_t id = 0;
          std::memcpy(&id, view->ids.values + row * view->ids.value_bytes, view->ids.value_bytes);
          ASSERT_EQ(bits.part_of(id), part.number);
          ASSERT_EQ(wrong_row(*form, *view, row, part.runs[run].step), "");
          --expected[{id, part.runs[run].step}];
        }
      }
      EXPECT_EQ(row, view->rows);
    }
    for (const auto& [key, left] : expected) EXPECT_EQ(left, 0) << key.first << " " << key.second;
    EXPECT_LE(bytes, parts_bytes_max(rows, form->row_bytes(), bits.parts(), form->overhead_bytes()));
  }
}

}  // namespace
}  // namespace offpath::sift
