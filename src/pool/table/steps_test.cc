// Steps that wait for ranks, without objects.
#include "pool/table/steps.h"

#include <gtest/gtest.h>

namespace offpath::pool {
namespace {

constexpr uid_t owner = 1000, stranger = 1001;

class StepsTest : public ::testing::Test {
 protected:
  bool over(const std::string& row, std::uint32_t rank, std::uint32_t ranks) {
    const auto ended = steps_.end("p", owner, row, rank, ranks, now_);
    EXPECT_TRUE(ended);
    return ended.value_or(false);
  }
  TimeNs now_ = second_ns;
  Steps steps_{{.user_ends_max = 3, .user_key_bytes_max = 8}};
};

TEST_F(StepsTest, AStepIsOverWhenItsLastRankHasEndedIt) {
  EXPECT_FALSE(over("s0", 1, 3));
  EXPECT_FALSE(over("s0", 1, 3)) << "the same rank counts once";
  EXPECT_FALSE(over("s0", 0, 2)) << "the largest number of ranks that was said holds";
  EXPECT_EQ(steps_.describe("p", "s0"), "pool \"p\": 2 of 3 ranks have ended step \"s0\"");
  EXPECT_TRUE(over("s0", 2, 3));
  EXPECT_FALSE(steps_.any_wait("p"));
  EXPECT_EQ(steps_.describe("p", "s0"), "");
}

TEST_F(StepsTest, AStepOfOneRankNeverWaits) {
  EXPECT_TRUE(over("s0", 0, 1));
  EXPECT_FALSE(steps_.waits("p", "s0"));
}

TEST_F(StepsTest, EachUserHasAnAccountWhichEndedAndDroppedStepsGiveBack) {
  EXPECT_FALSE(over("s0", 0, 9));
  EXPECT_FALSE(over("s0", 1, 9));
  EXPECT_FALSE(over("s1", 0, 9));
  EXPECT_EQ(steps_.end("p", owner, "s1", 1, 9, now_).error().code, Error::too_large);
  EXPECT_TRUE(steps_.end("q", stranger, "s1", 1, 9, now_)) << "another user's account";
  steps_.drop("p", "s0");
  EXPECT_TRUE(steps_.waits("p", "s1"));
  EXPECT_FALSE(over("s1", 1, 9));
  steps_.drop("p", "*");
  EXPECT_FALSE(steps_.any_wait("p"));
  EXPECT_TRUE(steps_.any_wait("q"));
}

TEST_F(StepsTest, KeysOfStepsAreBoundedAndARefusalCountsNothing) {
  EXPECT_FALSE(over("12345678", 0, 2));
  EXPECT_EQ(steps_.end("q", owner, "9", 0, 2, now_).error().code, Error::too_large);
  EXPECT_FALSE(steps_.any_wait("q"));
  EXPECT_TRUE(over("12345678", 1, 2));
  EXPECT_TRUE(steps_.end("q", owner, "9", 0, 2, now_));
}

TEST_F(StepsTest, ARankThatHasGoneIsNamedUntilItEndsAStepAgain) {
  EXPECT_FALSE(over("s0", 0, 2));
  steps_.rank_ended("p", 1, {.program = "solver", .host = "node7", .pid = 4711});
  EXPECT_NE(steps_.describe("p", "s0").find("rank 1 (solver, process 4711 on node7)"), std::string::npos);
  PoolSteps listed{.pool = "p", .newest = {}};
  steps_.list("p", listed);
  EXPECT_EQ(listed.waiting, 1u);
  EXPECT_EQ(listed.listed.at(0).missing, std::vector<std::uint32_t>{1});
  EXPECT_TRUE(over("s0", 1, 2));
  EXPECT_FALSE(over("s1", 0, 2));
  EXPECT_EQ(steps_.describe("p", "s1").find("solver"), std::string::npos);
}

TEST_F(StepsTest, StepsThatHaveWaitedLongestAreListedFirstSinceTheirFirstRank) {
  Steps steps({.user_ends_max = 100, .user_key_bytes_max = 1000});
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(steps.end("p", owner, std::to_string(100 - i), 0, 3, (i + 1) * second_ns))
        << "names say nothing of ages";
  ASSERT_TRUE(steps.end("p", owner, "100", 1, 3, 60 * second_ns));
  PoolSteps listed{.pool = "p", .newest = {}};
  steps.list("p", listed);
  EXPECT_EQ(listed.waiting, 20u);
  ASSERT_EQ(listed.listed.size(), PoolSteps::listed_max);
  for (std::size_t i = 0; i < listed.listed.size(); ++i) {
    EXPECT_EQ(listed.listed[i].row, std::to_string(100 - i));
    EXPECT_EQ(listed.listed[i].since, static_cast<TimeNs>(i + 1) * second_ns);
  }
}

}  // namespace
}  // namespace offpath::pool
