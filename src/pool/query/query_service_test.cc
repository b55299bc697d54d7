// Queries of one member's rows.
#include "pool/query/query_service.h"

#include <gtest/gtest.h>

#include "testing/pool/query_fixture.h"

namespace offpath::pool {
namespace {

TEST_F(QueryServiceTest, FramesComeOneByOneAndStepsOnlyAsTheyAreAskedFor) {
  begin({});
  run_jobs();
  const std::uint64_t answer = done();
  std::uint64_t frames = 0, rows = 0;
  for (;; ++frames) {
    ask(EntryKind::query_next, wire::QueryNext{answer, frames});
    run_jobs();
    const auto* const over = only<service::HandOverEffect>();
    if (over == nullptr) break;
    rows += over->got.rows;
    EXPECT_LE(over->got.length, 4u << 20);
    effects_.clear();
  }
  EXPECT_EQ(done(), 0u);
  EXPECT_EQ(rows, 400'000u);
  EXPECT_GT(service_.counters().steps, 1u);
  EXPECT_EQ(service_.counters().open, 0u);
  EXPECT_EQ(service_.counters().rows_read, 400'000u);
}

TEST_F(QueryServiceTest, WhatIsWrongWithAQueryIsSaidAtItsBeginning) {
  begin({}, -1, "local:/none");
  EXPECT_EQ(failure(), "there is no pool \"local:/none\"");
  Query query;
  query.filter = field("speed");
  begin(query);
  run_jobs();
  EXPECT_EQ(failure().substr(0, 34), "there is no column \"speed\"; there ");
  ask(EntryKind::pool_query, wire::PoolQuery{"local:/p", "*", "*", -1, {.length = query_bytes_max + 1}});
  EXPECT_EQ(failure(), "a query of 1048577 bytes, 1 to 1048576 are allowed");
  begin({});
  effects_.clear();
  EXPECT_EQ(service_.counters().open, 1u);
}

TEST_F(QueryServiceTest, ATimeThatIsOverEndsItWhetherAJobRunsOrNot) {
  begin({}, 100);
  EXPECT_EQ(service_.next_deadline(), 100);
  service_.on_time(100, effects_);  // its first step is running, and sees the stop
  run_jobs();
  EXPECT_EQ(failure(), "the query's deadline passed before its answer was complete");
  begin({}, 100);
  run_jobs();
  const std::uint64_t answer = done();
  service_.on_time(100, effects_);
  EXPECT_TRUE(effects_.empty());
  ask(EntryKind::query_next, wire::QueryNext{answer, 0});
  EXPECT_EQ(failure().substr(0, 18), "there is no answer");
}

TEST_F(QueryServiceTest, AnswersBelongToTheirChannelAndEndWithIt) {
  begin({});
  run_jobs();
  const std::uint64_t answer = done();
  ask(EntryKind::query_next, wire::QueryNext{answer, 0}, stranger);
  EXPECT_EQ(failure().substr(0, 18), "there is no answer");
  ask(EntryKind::release, wire::Release{answer}, stranger);
  EXPECT_EQ(service_.counters().open, 1u);
  ask(EntryKind::query_next, wire::QueryNext{answer, 7});
  EXPECT_EQ(failure(), "frame 7 of an answer was asked for, it is at 0");
  begin({});
  begin({});
  run_jobs();
  service_.on_channel_closed(asker, 0, effects_);
  EXPECT_EQ(service_.counters().open, 0u);
  EXPECT_EQ(service_.counters().running, 0u);
}

TEST_F(QueryServiceTest, WhoWantsItNoMoreCancelsItsRequest) {
  begin({});
  const std::uint64_t begun = ticket_;
  ask(EntryKind::pool_cancel, wire::PoolCancel{begun}, stranger);
  ask(EntryKind::pool_cancel, wire::PoolCancel{begun + 100});
  EXPECT_EQ(service_.counters().open, 1u);
  ask(EntryKind::pool_cancel, wire::PoolCancel{begun});
  EXPECT_EQ(service_.counters().open, 0u);
  run_jobs();  // the job of the cancelled query
  ASSERT_NE(only<service::FailEffect>(), nullptr);
  EXPECT_EQ(only<service::FailEffect>()->ticket, begun);
  EXPECT_EQ(only<service::FailEffect>()->failure.code, Error::cancelled);
  EXPECT_EQ(service_.counters().running, 0u);
}

TEST_F(QueryServiceTest, OneStepAtATimeAndSoManyAnswersOfAChannel) {
  begin({});
  EXPECT_EQ(service_.counters().running, 1u);
  auto first = std::move(effects_);
  effects_.clear();
  begin({});
  EXPECT_TRUE(effects_.empty());  // waits for its place
  begin({});
  EXPECT_EQ(failure(), "the program has 2 answers open, which is the limit");
  effects_ = std::move(first);
  run_jobs();
  EXPECT_EQ(effects_.size(), 2u);  // both have begun
}

}  // namespace
}  // namespace offpath::pool
