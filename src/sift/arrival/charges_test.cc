#include "sift/arrival/charges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/sift/one_sift.h"
#include "testing/sift/sift_parts.h"

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;

TEST(Charges, TheScratchOfASortOfLongIdentifiersIsCharged) {
  OneSift agent("sift:/t?key=id&by=hash&threshold=1MiB&budget=64MiB");
  frame::Schema schema;
  schema.fields.push_back({.name = "id", .type = frame::Type::decimal128, .precision = 38});
  const auto form = RowForm::make(schema, {std::string("id"), KeyBy::hash}).value();
  const std::vector<std::uint64_t> ids(1000, 5);
  const FramePtr frame = particle_frame(*form, ids, 1, agent.program);
  agent.sift->on_put(1, "1", frame, 0, agent.effects);
  agent.run_jobs();
  // Memory of keys and their order, of entries twice, and of each value's place and bytes; see TrackRun::sort.
  constexpr std::uint64_t row_bytes = 20 + 2 * 16 + 16 + 16;
  EXPECT_GE(agent.sift->counters(1).used_bytes, frame->bytes + ids.size() * row_bytes);
}

TEST(Charges, APieceIsChargedForItselfAndWhatItMayNeed) {
  SiftParts parts("sift:/t?key=id&fanout=4&threshold=4KiB&budget=1MiB");
  constexpr std::uint64_t rows = 1000;
  const std::uint64_t bytes = parts.frame(0, rows, 0)->bytes;
  EXPECT_GE(parts.charges.of_piece(bytes, rows), 2 * bytes) << "its rows once more, in its parts";
  EXPECT_GE(parts.charges.of_piece(bytes, 100 * rows),
            bytes + 100 * rows * TrackRun::sort_bytes_per_row(*parts.form.tracks->rows));
  EXPECT_GE(parts.charges.of_split(1), 4 * parts.form.overhead_bytes);
  EXPECT_EQ(parts.charges.of_split(2), 0u) << "a sort makes no parts";
  SiftParts kept("sift:/t?key=id&fanout=4&threshold=4KiB&budget=1MiB", {"a"}, true);
  EXPECT_GT(kept.charges.of_piece(bytes, rows), parts.charges.of_piece(bytes, rows)) << "its notes";
}

TEST(Charges, TheScratchOfASortOfSmallRowsIsCharged) {
  OneSift agent("sift:/t?key=id&threshold=1MiB&budget=64MiB");
  frame::Schema schema;
  schema.fields.push_back({.name = "id", .type = frame::Type::uint64});
  schema.fields.push_back({.name = "type", .type = frame::Type::uint8});
  const auto form = RowForm::make(schema, "id").value();
  const FramePtr frame = particle_frame(*form, std::vector<std::uint64_t>(1000, 5), 1, agent.program);
  agent.sift->on_put(1, "1", frame, 0, agent.effects);
  // Keys twice and their order, the steps and, for identifiers that differ in many bits, two entries.
  constexpr std::uint64_t row_bytes = 2 * 8 + 4 + 8 + 2 * 16;
  EXPECT_GE(agent.sift->counters(1).used_bytes, frame->bytes + 1000 * row_bytes);
}

// Its offer comes before any frame says what the columns are.
TEST(Charges, TheFirstPieceIsChargedAsOfAnyFormThatItMayHave) {
  SiftParts parts("sift:/t?key=id&fanout=4&threshold=4KiB&budget=1MiB");
  constexpr std::uint64_t rows = 1000;
  const std::uint64_t bytes = parts.frame(0, rows, 0)->bytes, known = parts.charges.of_piece(bytes, rows);
  parts.form.tracks = nullptr;
  EXPECT_GE(parts.charges.of_piece(bytes, rows), known);
  for (const std::uint64_t many : {rows, 10 * rows}) {
    const std::uint64_t charge = parts.charges.of_piece(200'000, many);
    EXPECT_TRUE(parts.charges.check(charge)) << "a guess refuses nothing";
  }
}

TEST(Charges, APieceThatNoStageCanAdmitIsRefusedWithBothFigures) {
  SiftParts parts("sift:/t?key=id&fanout=4&threshold=4KiB&budget=1MiB");
  const std::uint64_t largest = (1 << 20) - parts.charges.of_split(1);
  EXPECT_TRUE(parts.charges.check(largest));
  const Status status = parts.charges.check(largest + 1);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Error::too_large);
  EXPECT_THAT(status.error().message,
              HasSubstr("may need 1048577 bytes to be split, but the budget of '/t' is 1048576"));
}

// Otherwise the pieces of one split, which come back together, might have no room.
TEST(Charges, APieceThatComesBackIsChargedAtMostAsBefore) {
  SiftParts parts("sift:/t?key=id&fanout=4&threshold=4KiB&budget=1MiB", {"a"}, true);
  constexpr std::uint64_t rows = 1000;
  const std::uint64_t bytes = parts.frame(0, rows, 0)->bytes, before = parts.charges.of_piece(bytes, rows);
  const KeptItem item{"piece", bytes, rows};
  EXPECT_LE(parts.charges.of_kept_piece(item, 1), before);
  parts.form = {};
  EXPECT_LE(parts.charges.of_kept_piece(item, 1), before) << "before any frame says what the columns are";
}

// So an agent that charges more for sorts than the one that took it has room for the same splits.
TEST(Charges, APieceThatComesBackIsChargedForASortOnlyWhereItMayBeSorted) {
  SiftParts parts("sift:/t?key=id&fanout=4&threshold=4KiB&budget=1MiB", {"a"}, true);
  const KeptItem item{"piece", 40'000, 1000};
  const std::uint64_t split = parts.charges.of_kept_piece(item, 1), sort = parts.charges.of_kept_piece(item, 2);
  EXPECT_EQ(split, BufferCache::class_bytes(40'000) + 45'000);
  EXPECT_EQ(sort, BufferCache::class_bytes(40'000) + 1000 * TrackRun::sort_bytes_per_row(*parts.form.tracks->rows));
  parts.form = {};
  EXPECT_EQ(parts.charges.of_kept_piece(item, 1), split);
  EXPECT_GE(parts.charges.of_kept_piece(item, 2), sort) << "of any form that it may have";
}

TEST(Charges, APieceThatComesBackIsAlwaysAdmitted) {
  SiftParts parts("sift:/t?key=id&fanout=4&threshold=4KiB&budget=1MiB", {"a"}, true);
  const KeptItem large{"piece", 100 << 20, 1'000'000};
  EXPECT_EQ(parts.charges.of_kept_piece(large, 1) + parts.charges.of_split(1), 1u << 20);
  EXPECT_EQ(parts.charges.of_kept_piece(large, 2), 1u << 20);
}

}  // namespace
}  // namespace offpath::sift
