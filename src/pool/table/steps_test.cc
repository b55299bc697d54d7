// Steps that wait for ranks, without objects.
#include "pool/table/steps.h"

#include <gtest/gtest.h>

namespace offpath::pool {
namespace {

constexpr uid_t user = 1000, other = 1001;

class StepsTest : public ::testing::Test {
 protected:
  bool over(const std::string& row, std::uint32_t rank, std::uint32_t ranks) {
    const auto ended = steps_.end("p", user, row, rank, ranks);
    EXPECT_TRUE(ended);
    return ended.value_or(false);
  }
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
  EXPECT_EQ(steps_.end("p", user, "s1", 1, 9).error().code, Error::too_large);
  EXPECT_TRUE(steps_.end("q", other, "s1", 1, 9)) << "another user's account";
  steps_.drop("p", "s0");
  EXPECT_TRUE(steps_.waits("p", "s1"));
  EXPECT_FALSE(over("s1", 1, 9));
  steps_.drop("p", "*");
  EXPECT_FALSE(steps_.any_wait("p"));
  EXPECT_TRUE(steps_.any_wait("q"));
}

TEST_F(StepsTest, KeysOfStepsAreBoundedAndARefusalCountsNothing) {
  EXPECT_FALSE(over("12345678", 0, 2));
  EXPECT_EQ(steps_.end("q", user, "9", 0, 2).error().code, Error::too_large);
  EXPECT_FALSE(steps_.any_wait("q"));
  EXPECT_TRUE(over("12345678", 1, 2));
  EXPECT_TRUE(steps_.end("q", user, "9", 0, 2));
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

}  // namespace
}  // namespace offpath::pool
