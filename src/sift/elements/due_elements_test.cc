#include "sift/elements/due_elements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/sift/one_sift.h"
#include "testing/sift/sift_parts.h"

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;

TEST(DueElements, AFullBudgetSplitsWhatIsBelowTheThreshold) {
  OneSift agent("sift:/t?key=id&fanout=2&threshold=512KiB&budget=512KiB&age=10s");
  for (std::uint64_t token = 1; token <= 20; ++token)
    agent.sift->on_put(token, "0", agent.frame(0, 1000, 0), 0, agent.effects);
  EXPECT_GT(agent.sift->counters(1).offers_waiting, 0u);
  EXPECT_EQ(agent.sift->counters(1).split_under_pressure, 1u);
  agent.run();
  EXPECT_EQ(agent.sift->counters(1).offers_waiting, 0u);
  EXPECT_EQ(agent.sift->counters(1).pieces_taken, 20u);
}

TEST(DueElements, WhatIsOldIsSplit) {
  OneSift agent("sift:/t?key=id&fanout=2&threshold=1MiB&age=100ms");
  agent.sift->on_put(1, "0", agent.frame(0, 10, 0), 5, agent.effects);
  EXPECT_EQ(agent.sift->next_deadline(), 5 + 100 * millisecond_ns);
  agent.sift->on_time(100 * millisecond_ns, agent.effects);
  EXPECT_EQ(agent.take<JobEffect>().size(), 0u);
  agent.sift->on_time(101 * millisecond_ns, agent.effects);
  EXPECT_EQ(agent.take<JobEffect>().size(), 1u);
}

TEST(DueElements, AFailedJobLosesNothing) {
  OneSift agent("sift:/t?key=id&fanout=2&threshold=4KiB&budget=1MiB");
  agent.sift->on_put(1, "0", agent.frame(0, 1000, 0), 0, agent.effects);
  const auto jobs = agent.take<JobEffect>();
  ASSERT_EQ(jobs.size(), 1u);
  agent.sift->on_job(jobs[0].token, fail(Error::no_memory, "none"), 0, agent.effects);
  EXPECT_EQ(agent.take<JobEffect>().size(), 0u);
  agent.now = agent.sift->next_deadline();
  agent.sift->on_time(agent.now, agent.effects);
  agent.run();
  EXPECT_EQ(agent.sift->tracks().rows(), 1000u);
}

TEST(DueElements, AnElementWhoseSplitFailedRestsThoughItHasEnoughBytes) {
  SiftParts parts("sift:/t?key=id&fanout=2&threshold=4KiB&budget=1MiB");
  Element& element = parts.elements[{1, 0}];
  parts.give(element, 1000);
  parts.due.rest(element, 100);
  parts.due.consider(element, 100);
  EXPECT_TRUE(parts.due.empty(1));
  EXPECT_FALSE(parts.due.relieve(1)) << "not even for pieces without room";
  const TimeNs again = parts.due.next_deadline();
  EXPECT_EQ(again, parts.options.retry_at(0, 100));
  EXPECT_EQ(parts.due.take_timer(again - 1), nullptr);
  EXPECT_EQ(parts.due.take_timer(again), &element);
  ASSERT_FALSE(parts.due.empty(1));
  EXPECT_EQ(&parts.due.first(1), &element);
  parts.due.pop_first(1);
  EXPECT_FALSE(element.due);
}

TEST(DueElements, AnElementThatIsHeldBackWhenItsRestEndsIsDueAfterTheMerge) {
  SiftParts parts("sift:/t?key=id&fanout=2&threshold=4KiB&budget=1MiB");
  Element& element = parts.elements[{2, 1}];
  Piece piece{parts.frame(0, 10, 0), {}, {{0, 10}}};
  piece.view = parts.form.tracks->rows->view({piece.frame->buffer.data(), piece.frame->bytes}).value();
  while (!element.tracks.are_many(parts.track_memory.run_bytes_max()))
    element.tracks.add(TrackRun::sort(parts.form.tracks->rows, {piece}, parts.memory).value());
  parts.give(element, 1000);
  parts.due.rest(element, 100);
  element.merge_waits = true;
  const TimeNs again = parts.due.next_deadline();
  EXPECT_EQ(parts.due.take_timer(again), &element);
  parts.due.consider(element, again);
  EXPECT_TRUE(parts.due.empty(2)) << "its merge comes first";
  EXPECT_FALSE(parts.due.relieve(2));
  element.merge_waits = false;
  parts.due.consider(element, again);
  ASSERT_FALSE(parts.due.empty(2));
  EXPECT_EQ(&parts.due.first(2), &element);
}

TEST(DueElements, OfElementsBelowTheThresholdTheLargestRelievesItsStage) {
  SiftParts parts("sift:/t?key=id&stages=2&fanout=2&threshold=1MiB&budget=1MiB");
  Element &small = parts.elements[{2, 0}], &large = parts.elements[{2, 1}];
  parts.give(small, 100);
  parts.give(large, 1000);
  parts.due.consider(large, 0);
  ASSERT_TRUE(parts.due.empty(2)) << "it is young";
  parts.due.begin(2);
  EXPECT_FALSE(parts.due.relieve(2)) << "a split will make room";
  parts.due.end(2);
  EXPECT_TRUE(parts.due.relieve(2));
  EXPECT_EQ(&parts.due.first(2), &large);
  EXPECT_EQ(parts.budgets[2].split_under_pressure, 1u);
}

}  // namespace
}  // namespace offpath::sift
