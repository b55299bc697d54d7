#include "sift/elements/track_merges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/sift/one_sift.h"
#include "testing/sift/sift_parts.h"

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;

TEST(TrackMerges, AMergedRunStaysOnDiskWhileItIsRead) {
  OneSift agent("sift:/t?key=id&fanout=2&threshold=4096&budget=256KiB&spill=on&tracks_budget=64KiB");
  const auto put = [&](std::int64_t step) {
    agent.sift->on_put(static_cast<std::uint64_t>(step), fmt::format("{}", step), agent.frame(0, 100, step), agent.now,
                       agent.effects);
    agent.run();
    agent.flush();
  };
  std::int64_t step = 1;
  for (; step <= 30; ++step) put(step);
  {
    TrackReader reader(agent.sift->tracks(), {}, 100);
    ASSERT_NE(reader.next(agent.program).value(), nullptr);
    for (; step <= 90; ++step) put(step);
    std::uint64_t rows = 100;
    while (const FramePtr frame = reader.next(agent.program).value()) rows += frame->rows;
    EXPECT_EQ(rows, 30 * 100u) << "those that were there when it began";
  }
  EXPECT_EQ(rows_read(agent), 90 * 100u);
  agent.now += second_ns;
  agent.sift->on_time(agent.now, agent.effects);
  agent.run();
  std::uint64_t objects = 0;
  const TrackSnapshot tracks = agent.sift->tracks();
  for (const auto& group : tracks.groups())
    for (const auto& run : group.runs) objects += run->is_in_memory() ? 0 : 1;
  EXPECT_EQ(agent.store.size(), objects) << "what was merged is gone";
  agent.sift->drop(agent.effects);
  EXPECT_EQ(agent.sift->track_memory().bytes(), 0u);
}

class TrackMergesAlone : public testing::Test {
 protected:
  explicit TrackMergesAlone(const char* name = "sift:/t?key=id&fanout=2") : parts(name) {}
  void add_run(std::int64_t step) {
    Piece piece{parts.frame(0, 500, step), {}, {{step, 500}}};
    piece.view = parts.form.tracks->rows->view({piece.frame->buffer.data(), piece.frame->bytes}).value();
    const auto run =
        TrackRun::sort(parts.form.tracks->rows, {piece}, parts.memory, nullptr, parts.track_memory.block_bytes());
    parts.track_memory.add(*run, run_name(element.id, static_cast<std::uint64_t>(step)), false);
    element.tracks.add(*run);
    parts.merges.queue(element, 0);
  }

  SiftParts parts;
  Element& element = parts.elements[{2, 1}];
};

TEST_F(TrackMergesAlone, RunsOfOneSizeAreMergedIntoOne) {
  for (std::int64_t step = 1; step < 4; ++step) add_run(step);
  EXPECT_FALSE(parts.merges.begin(0)) << "three are few";
  add_run(4);
  auto merge = parts.merges.begin(0);
  ASSERT_TRUE(merge);
  EXPECT_EQ(&merge->element, &element);
  EXPECT_EQ(merge->runs.size(), 4u);
  EXPECT_FALSE(parts.merges.begin(0)) << "it is under way";
  Batch batch;
  batch.run_bytes = merge->run_bytes;
  batch.run = TrackRun::merge(merge->runs, parts.memory).value();
  parts.merges.end(element, batch, merge->runs, "run", {}, 0, parts.effects);
  ASSERT_EQ(element.tracks.runs().size(), 1u);
  EXPECT_EQ(element.tracks.runs()[0]->rows(), 2000u);
  EXPECT_EQ(parts.budgets[2].merges, 1u);
  EXPECT_EQ(parts.track_memory.count_runs().first, 1u);
}

TEST_F(TrackMergesAlone, AfterAFailureTheElementRestsAndKeepsItsRuns) {
  for (std::int64_t step = 1; step <= 4; ++step) add_run(step);
  auto merge = parts.merges.begin(0);
  ASSERT_TRUE(merge);
  Batch batch;
  batch.run_bytes = merge->run_bytes;
  parts.merges.end(element, batch, merge->runs, "run", fail(Error::no_memory, "none"), 0, parts.effects);
  EXPECT_EQ(element.tracks.runs().size(), 4u);
  EXPECT_EQ(parts.budgets[2].merge_failures, 1u);
  EXPECT_FALSE(parts.merges.begin(0));
  const TimeNs again = parts.merges.next_deadline();
  EXPECT_EQ(again, parts.options.merge_again_at(0, 0));
  EXPECT_EQ(parts.merges.take_timer(again - 1), nullptr);
  EXPECT_EQ(parts.merges.take_timer(again), &element);
  EXPECT_TRUE(parts.merges.begin(again));
}

class BoundedTrackMerges : public TrackMergesAlone {
 protected:
  BoundedTrackMerges() : TrackMergesAlone("sift:/t?key=id&fanout=2&spill=on&tracks_budget=4MiB") {}
};

TEST_F(BoundedTrackMerges, AMergeWithoutRoomStaysFirst) {
  for (std::int64_t step = 1; step <= 4; ++step) add_run(step);
  const std::uint64_t rest = parts.track_memory.bytes_max() - parts.track_memory.memory_bytes();
  ASSERT_TRUE(parts.track_memory.take(rest, TrackMemory::For::sort));
  EXPECT_FALSE(parts.merges.begin(0));
  EXPECT_TRUE(element.merge_waits);
  EXPECT_FALSE(element.tracks.is_merging());
  parts.track_memory.give_back(rest);
  const auto merge = parts.merges.begin(0);
  ASSERT_TRUE(merge);
  EXPECT_FALSE(element.merge_waits);
}

}  // namespace
}  // namespace offpath::sift
