#include "sift/sift.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/sift/one_sift.h"

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;

TEST(Sift, WhatIsPutBecomesTracks) {
  OneSift agent("sift:/t?key=id&stages=2&fanout=4&threshold=64KiB&budget=4MiB");
  for (std::int64_t step = 0; step < 20; ++step) {
    agent.sift->on_put(static_cast<std::uint64_t>(step), fmt::format("step{:04}", step), agent.frame(100, 500, step), 0,
                       agent.effects);
    agent.run();
  }
  agent.sift->on_flush(77, 1, never, 0, agent.effects);
  agent.run();
  const auto flushed = agent.take<FlushedEffect>();
  ASSERT_EQ(flushed.size(), 1u);
  EXPECT_TRUE(flushed[0].status);
  EXPECT_TRUE(agent.sift->idle());
  const std::uint32_t wanted[] = {123 % 16};
  TrackReader reader(agent.sift->tracks(wanted), {.identifiers = {{123}}, .first_step = 5, .last_step = 14}, 1000);
  const FramePtr frame = reader.next(agent.program).value();
  ASSERT_NE(frame, nullptr);
  const auto view = agent.sift->form()->answers->view({frame->buffer.data(), frame->bytes}).value();
  ASSERT_EQ(view.rows, 10u);
  for (std::uint64_t row = 0; row < 10; ++row) {
    EXPECT_EQ(load<std::int64_t>(view.columns[0].values + row * 8), static_cast<std::int64_t>(row + 5));
    EXPECT_EQ(load<std::uint64_t>(view.ids.values + row * 8), 123u);
    EXPECT_EQ(wrong_row(*agent.form, view, row, static_cast<std::int64_t>(row + 5), 1), "");
  }
  EXPECT_EQ(reader.next(agent.program).value(), nullptr);
  for (std::uint32_t stage = 1; stage <= 3; ++stage) EXPECT_EQ(agent.sift->counters(stage).used_bytes, 0u) << stage;
}

TEST(Sift, APieceIsPublishedUntilItIsAnsweredUnderTheSameNumber) {
  OneSift agent("sift:/t?key=id&fanout=2&threshold=4KiB&budget=1MiB", {"a", "b"});
  agent.sift->on_put(1, "0", agent.frame(0, 1000, 0), 0, agent.effects);
  agent.run_jobs();
  auto published = agent.take<PublishEffect>();
  ASSERT_EQ(published.size(), 2u);
  const std::uint64_t used = agent.sift->counters(1).used_bytes;
  EXPECT_GT(used, 0u);
  TimeNs wait = 0;
  for (int attempt = 0; attempt < 12; ++attempt) {
    agent.sift->on_published(published[0].token, fail(Error::peer_lost, "away"), agent.now, agent.effects);
    EXPECT_EQ(agent.take<PublishEffect>().size(), 0u);
    const TimeNs next = agent.sift->next_deadline();
    EXPECT_GE(next - agent.now, std::min(wait, second_ns));
    wait = next - agent.now;
    EXPECT_LE(wait, second_ns);
    agent.now = next;
    agent.sift->on_time(agent.now, agent.effects);
    const auto again = agent.take<PublishEffect>();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].header, published[0].header);
    EXPECT_EQ(again[0].token, published[0].token);
  }
  EXPECT_EQ(agent.sift->counters(1).used_bytes, used);
  for (const PublishEffect& each : published) agent.sift->on_published(each.token, {}, agent.now, agent.effects);
  EXPECT_EQ(agent.sift->counters(1).used_bytes, 0u);
  EXPECT_TRUE(agent.sift->idle());
}

TEST(Sift, CreditBoundsWhatIsUnderWay) {
  OneSift agent("sift:/t?key=id&fanout=4&threshold=4KiB&budget=1MiB&credit=50kB", {"a", "b"});
  agent.sift->on_put(1, "0", agent.frame(0, 1000, 0), 0, agent.effects);
  agent.run_jobs();
  std::size_t sent = 0;
  for (auto published = agent.take<PublishEffect>(); !published.empty(); published = agent.take<PublishEffect>()) {
    ASSERT_EQ(published.size(), 1u) << "two parts are more than 50 kB";
    sent += published.size();
    agent.sift->on_published(published[0].token, {}, 0, agent.effects);
  }
  EXPECT_EQ(sent, 4u);
}

TEST(Sift, AFlushThatIsNotPassedOnEndsAtItsDeadline) {
  OneSift agent("sift:/t?key=id&fanout=4&threshold=64KiB", {"a", "b"});
  agent.sift->on_flush(9, 4, 500, 0, agent.effects);
  EXPECT_EQ(agent.sift->next_deadline(), 500);
  std::vector<std::uint64_t> tokens;
  for (const PublishEffect& each : agent.take<PublishEffect>()) {
    EXPECT_EQ(each.header.flush, 4u);
    if (each.member == "a") agent.sift->on_offer(1, each.header, 0, nullptr, 0, agent.effects);
  }
  agent.sift->on_time(500, agent.effects);
  const auto flushed = agent.take<FlushedEffect>();
  ASSERT_EQ(flushed.size(), 1u);
  ASSERT_FALSE(flushed[0].status);
  EXPECT_THAT(flushed[0].status.error().message, HasSubstr("waits for 'b'"));
}

TEST(Sift, DroppingAnswersEverything) {
  OneSift agent("sift:/t?key=id&fanout=2&threshold=64KiB&budget=512KiB");
  for (std::uint64_t token = 1; token <= 20; ++token)
    agent.sift->on_put(token, "0", agent.frame(0, 1500, 0), 0, agent.effects);
  agent.sift->on_flush(99, 1, never, 0, agent.effects);
  const std::size_t answered = agent.take<StoredEffect>().size();
  const auto jobs = agent.take<JobEffect>();
  agent.sift->drop(agent.effects);
  EXPECT_EQ(agent.take<StoredEffect>().size(), 20 - answered);
  EXPECT_EQ(agent.take<FlushedEffect>().size(), 1u);
  for (const JobEffect& job : jobs) agent.sift->on_job(job.token, job.run(), 0, agent.effects);
  agent.sift->on_put(50, "0", agent.frame(0, 10, 0), 0, agent.effects);
  ASSERT_EQ(agent.effects.size(), 1u);
  EXPECT_FALSE(std::get<StoredEffect>(agent.effects[0]).status);
}

TEST(Sift, AFullDiskHoldsBackProgramsAndLosesNothing) {
  OneSift agent("sift:/t?key=id&fanout=2&threshold=4096&budget=256KiB&spill=on&tracks_budget=64KiB");
  const auto put = [&](std::int64_t step) {
    agent.sift->on_put(static_cast<std::uint64_t>(step), fmt::format("{}", step), agent.frame(0, 500, step), agent.now,
                       agent.effects);
    agent.run();
  };
  std::int64_t step = 1;
  for (; step <= 20; ++step) put(step);
  agent.flush();
  EXPECT_EQ(rows_read(agent), 20 * 500u);
  EXPECT_GT(agent.sift->track_memory().disk_bytes(), 300'000u);
  EXPECT_LE(agent.sift->track_memory().memory_bytes(), 64u << 10);
  EXPECT_FALSE(agent.store.empty());

  agent.disk_failure = Failure{Error::no_space, "the disk is full"};
  for (; step <= 60; ++step) put(step);
  EXPECT_LE(agent.sift->track_memory().memory_bytes(), 64u << 10);
  EXPECT_EQ(agent.sift->track_memory().failure(), "the disk is full");
  EXPECT_FALSE(agent.sift->idle()) << "pieces wait in their stages";
  EXPECT_GT(agent.sift->counters(1).offers_waiting, 0u) << "programs are held back";
  agent.sift->on_flush(77, ++agent.flushes, agent.now + second_ns, agent.now, agent.effects);
  agent.now += 2 * second_ns;
  agent.sift->on_time(agent.now, agent.effects);
  agent.run();
  const auto failed = agent.take<FlushedEffect>();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_THAT(failed[0].status.error().message, HasSubstr("tracks cannot leave memory: the disk is full"));

  agent.disk_failure.reset();
  for (int i = 0; i < 100 && !agent.sift->idle(); ++i) {
    agent.now += second_ns;
    agent.sift->on_time(agent.now, agent.effects);
    agent.run();
  }
  agent.flush();
  EXPECT_EQ(rows_read(agent), 60 * 500u);
  EXPECT_EQ(agent.sift->track_memory().failure(), "");
  EXPECT_LE(agent.sift->track_memory().memory_bytes(), 64u << 10);
}

}  // namespace
}  // namespace offpath::sift
