#include "pool/compute/triggers.h"

#include <gtest/gtest.h>

namespace offpath::pool {
namespace {

TriggerOptions on_objects() {
  TriggerOptions made;
  made.pool = "hash:/p?replicas=2";
  made.row = "step*";
  made.plugin = "plugin";
  made.function = "f";
  made.result_column = "out";
  made.queue_max = 2;
  made.calls_max = 1;
  return made;
}

class TriggersTest : public ::testing::Test {
 protected:
  void show(const std::string& row, const std::string& column, const std::string& pool = "hash:/p") {
    triggers_.on_shown(pool, {row, column}, std::make_shared<service::Frame>());
  }
  // The rows of the calls that are due, "-" for a timer's.
  std::string run(TimeNs now) {
    std::string rows;
    triggers_.run(now, [&](std::size_t, std::optional<Trigger::Object> object) {
      rows += (object ? object->keys.first : "-") + " ";
      if (object) last_ = std::move(*object);
    });
    return rows;
  }
  Triggers triggers_{{on_objects()}};
  Trigger::Object last_;
};

TEST_F(TriggersTest, ObjectsThatMatchAreCalledInOrderAndResultsAreNot) {
  show("step1", "x");
  show("other", "x");
  show("step1", "out");
  show("step1", "out.first");
  show("step1", "x", "hash:/other");
  show("step2", "outer");  // another column, whose name begins alike
  EXPECT_EQ(triggers_.next_deadline(), 0);
  EXPECT_EQ(run(5), "step1 ");
  EXPECT_EQ(triggers_.next_deadline(), never);  // one call at a time
  EXPECT_EQ(run(6), "");
  triggers_.on_ended(0, {}, std::nullopt, 7);
  EXPECT_EQ(run(7), "step2 ");
  triggers_.on_ended(0, {}, std::nullopt, 8);
  EXPECT_EQ(triggers_.all()[0].counters.calls, 2u);
  EXPECT_EQ(triggers_.next_deadline(), never);
}

TEST_F(TriggersTest, WhatHasNoRoomIsCounted) {
  for (const char* row : {"step1", "step2", "step3"}) show(row, "x");
  EXPECT_EQ(triggers_.all()[0].counters.dropped, 1u);
  EXPECT_EQ(run(1), "step1 ");
}

TEST_F(TriggersTest, ACallForWhichThePluginHasNoRoomIsMadeAgainALittleLater) {
  show("step1", "x");
  EXPECT_EQ(run(0), "step1 ");
  triggers_.on_ended(0, fail(Error::would_block, "full"), std::move(last_), 0);
  EXPECT_EQ(run(1), "");
  const TimeNs again = triggers_.next_deadline();
  EXPECT_GT(again, 1);
  EXPECT_EQ(run(again), "step1 ");
  triggers_.on_ended(0, fail(Error::function_failed, "x is negative"), std::move(last_), again);
  EXPECT_EQ(triggers_.all()[0].counters.calls, 1u);
  EXPECT_EQ(triggers_.all()[0].counters.failed, 1u);
  EXPECT_EQ(triggers_.all()[0].failure, "x is negative");
  EXPECT_EQ(run(again + second_ns), "");
}

TEST_F(TriggersTest, ATimerSkipsTimesAtWhichItsCallIsNotOver) {
  TriggerOptions timer = on_objects();
  timer.every_ns = 10;
  triggers_ = Triggers({timer});
  EXPECT_EQ(run(100), "");  // the agent has just started
  EXPECT_EQ(triggers_.next_deadline(), 110);
  EXPECT_EQ(run(110), "- ");
  EXPECT_EQ(run(120), "");
  triggers_.on_ended(0, {}, std::nullopt, 125);
  EXPECT_EQ(run(130), "- ");
  EXPECT_EQ(triggers_.all()[0].counters.skipped, 1u);
  show("step1", "x");
  EXPECT_TRUE(triggers_.all()[0].queue.empty());
}

TEST(ResultColumn, CarriesTheOutputsNameWhereItHasTo) {
  EXPECT_EQ(result_column_of("out", "mean", true), "out");
  EXPECT_EQ(result_column_of("out", "mean", false), "out.mean");
  EXPECT_EQ(result_column_of("", "mean", false), "mean");
}

}  // namespace
}  // namespace offpath::pool
