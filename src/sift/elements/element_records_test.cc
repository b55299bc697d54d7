#include "sift/elements/element_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "testing/sift/sift_parts.h"

namespace offpath::sift {
namespace {

class ElementRecordsTest : public testing::Test {
 protected:
  // A batch of `pieces` pieces of this agent, with a number.
  std::shared_ptr<Batch> batch(Element& element, int pieces) {
    for (int i = 0; i < pieces; ++i) {
      parts.give(element, 10);
      (void)element.sources["a"].life({"a", 1});
    }
    auto made = parts.batches.take(element);
    made->number = ++element.number;
    parts.budgets.charge(element.id.stage, parts.charges.of_split(element.id.stage));
    return made;
  }
  static std::vector<Part> parts_of(std::initializer_list<std::uint32_t> numbers) {
    std::vector<Part> made(numbers.size());
    std::ranges::transform(numbers, made.begin(), [](std::uint32_t number) {
      Part part;
      part.number = number;
      return part;
    });
    return made;
  }
  std::vector<std::string> forgotten() {
    std::vector<std::string> names;
    for (ForgetEffect& each : parts.take<ForgetEffect>()) names.push_back(std::move(each.name));
    return names;
  }

  SiftParts parts{"sift:/t?key=id&fanout=2&threshold=4KiB&budget=4MiB", {"a"}, true};
};

TEST_F(ElementRecordsTest, ASplitIsChargedAndKeepsItsPiecesUntilItsLastPartIsAnswered) {
  Element& element = parts.elements[{1, 0}];
  const auto split = batch(element, 2);
  split->parts = parts_of({0, 1});
  parts.records.note_split(element, *split);
  ASSERT_EQ(split->record.open.size(), 1u);
  EXPECT_EQ(split->record.open[0].pieces.size(), 2u);
  EXPECT_TRUE(split->record.sources.at(0).lives.at(0).settled.has(2));
  EXPECT_FALSE(element.sources["a"].settled(1)->has(2)) << "it is not kept yet";
  EXPECT_EQ(ElementRecords::sequence_of(element, *split, 1), 0u);

  parts.records.settle_split(element, *split, parts.effects);
  EXPECT_TRUE(element.sources["a"].settled(1)->has(2));
  EXPECT_EQ(ElementRecords::sequence_of(element, *split, 1), 1u);
  EXPECT_TRUE(forgotten().empty());
  parts.records.on_answered(element, split->number, parts.effects);
  EXPECT_GT(parts.budgets[1].used_bytes, 0u);
  parts.records.on_answered(element, split->number, parts.effects);
  EXPECT_EQ(parts.budgets[1].used_bytes, 0u);
  EXPECT_THAT(forgotten(),
              ::testing::UnorderedElementsAre(piece_name({1, 0}, {0, 1, 1}), piece_name({1, 0}, {0, 1, 2})));

  const auto next = batch(element, 1);
  next->parts = parts_of({1});
  parts.records.note_split(element, *next);
  EXPECT_EQ(next->record.open.size(), 1u) << "the first one is over";
  parts.records.settle_split(element, *next, parts.effects);
  EXPECT_EQ(ElementRecords::sequence_of(element, *next, 1), 2u);
  EXPECT_EQ(forgotten(), std::vector<std::string>{split_name({1, 0}, split->number)}) << "the record is newer";
}

TEST_F(ElementRecordsTest, ARunCoversTheRunsItWasMergedOf) {
  Element& element = parts.elements[{2, 0}];
  std::vector<std::shared_ptr<const TrackRun>> runs;
  for (int i = 0; i < 2; ++i) {
    const auto sort = batch(element, 1);
    const RunNotes notes = parts.records.note_sort(element, *sort);
    EXPECT_FALSE(notes.schema.empty());
    EXPECT_EQ(decode_record(notes.record).value(), sort->record);
    sort->run = TrackRun::sort(parts.form.tracks->rows, sort->pieces, parts.memory, &notes).value();
    runs.push_back(sort->run);
    parts.records.settle_sort(element, *sort, parts.effects);
    EXPECT_EQ(forgotten().size(), 1u) << "the run has the piece";
  }
  EXPECT_EQ(parts.budgets[2].used_bytes, 0u);
  element.abandoned.take(7, 7);
  Batch merge;
  merge.number = ++element.number;
  const RunNotes notes = parts.records.note_merge(element, merge, runs);
  for (const std::uint64_t number : {1u, 2u, 3u, 7u}) EXPECT_TRUE(merge.record.covers.has(number)) << number;
  EXPECT_FALSE(merge.record.covers.has(4));
  merge.run = TrackRun::merge(runs, parts.memory, &notes).value();
  ElementRecords::settle_merge(element, merge, runs);
  ASSERT_EQ(element.kept_runs.size(), 1u);
  EXPECT_EQ(element.kept_runs.at(merge.run.get()).number, 3u);
}

}  // namespace
}  // namespace offpath::sift
