#include "sift/flush_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;
using Round = FlushRounds::Round;
using Over = FlushRounds::Over;

// The second of three members; its programs' flushes have ids from 7 on.
class FlushRoundsTest : public ::testing::Test {
 protected:
  bool is_open(const FlushRounds::Outcome& outcome) { return std::holds_alternative<std::monostate>(outcome); }
  FlushRounds rounds_{"sift:/t", 1, 3};
};

TEST_F(FlushRoundsTest, IsOverWhenAllMembersHaveAnswered) {
  EXPECT_EQ(rounds_.begin(7, 2, 55, 100).number, 4u);
  EXPECT_TRUE(is_open(rounds_.on_answer(7, 0, 10)));
  EXPECT_TRUE(is_open(rounds_.on_answer(7, 0, 10)));
  const auto outcome = rounds_.on_answer(7, 0, 10);
  const Over* const over = std::get_if<Over>(&outcome);
  ASSERT_NE(over, nullptr);
  EXPECT_EQ(over->channel, 2u);
  EXPECT_EQ(over->ticket, 55u);
  EXPECT_TRUE(over->status);
  EXPECT_TRUE(is_open(rounds_.on_answer(7, 0, 10))) << "it is unknown now";
}

TEST_F(FlushRoundsTest, NumbersGrowAndDifferBetweenMembers) {
  FlushRounds other("sift:/t", 2, 3);
  const std::uint64_t first = rounds_.begin(7, 2, 55, 100).number, second = rounds_.begin(8, 2, 56, 100).number;
  EXPECT_LT(first, second);
  EXPECT_EQ(first % 3, 1u);
  EXPECT_EQ(second % 3, 1u);
  EXPECT_EQ(other.begin(7, 1, 1, 100).number % 3, 2u);
}

TEST_F(FlushRoundsTest, TheFirstFailureIsItsOutcomeWhenAllHaveAnswered) {
  (void)rounds_.begin(7, 2, 55, 100);
  EXPECT_TRUE(is_open(rounds_.on_answer(7, fail(Error::timeout, "first"), 10)));
  EXPECT_TRUE(is_open(rounds_.on_answer(7, fail(Error::no_memory, "second"), 10)));
  const auto outcome = rounds_.on_answer(7, 900, 10);
  const Over* const over = std::get_if<Over>(&outcome);
  ASSERT_NE(over, nullptr) << "a failed flush is not asked for again";
  EXPECT_EQ(over->status.error().message, "first");
}

TEST_F(FlushRoundsTest, TheLossOfAMemberEndsItThoughOthersHaveNotAnswered) {
  (void)rounds_.begin(7, 2, 55, 100);
  EXPECT_TRUE(is_open(rounds_.on_answer(7, 900, 10)));
  const auto outcome = rounds_.on_answer(7, fail(Error::peer_lost, "first"), 10);
  const Over* const over = std::get_if<Over>(&outcome);
  ASSERT_NE(over, nullptr) << "the third member may wait for the one that is lost";
  EXPECT_EQ(over->ticket, 55u);
  EXPECT_EQ(over->status.error().message, "first");
  EXPECT_TRUE(is_open(rounds_.on_answer(7, fail(Error::timeout, "second"), 10))) << "it is unknown now";
}

TEST_F(FlushRoundsTest, AllEndWithOneFailure) {
  (void)rounds_.begin(7, 2, 55, 100);
  (void)rounds_.begin(8, 3, 56, 100);
  std::map<std::uint64_t, Status> ended;
  for (const Over& over : rounds_.end_all({Error::peer_lost, "c died"})) ended.emplace(over.ticket, over.status);
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended.at(55).error().message, "c died");
  EXPECT_EQ(ended.at(56).error().code, Error::peer_lost);
  EXPECT_TRUE(is_open(rounds_.on_answer(7, 0, 10)));
  EXPECT_TRUE(rounds_.end_all({Error::peer_lost, "b died"}).empty());
}

TEST_F(FlushRoundsTest, ALaterFlushOfAMemberMakesAnotherRound) {
  (void)rounds_.begin(7, 2, 55, 100);
  EXPECT_TRUE(is_open(rounds_.on_answer(7, 0, 10)));
  EXPECT_TRUE(is_open(rounds_.on_answer(7, 900, 10)));
  const auto outcome = rounds_.on_answer(7, 300, 10);
  const Round* const again = std::get_if<Round>(&outcome);
  ASSERT_NE(again, nullptr);
  EXPECT_GT(again->number, 900u);
  EXPECT_EQ(again->deadline, 100);
  EXPECT_TRUE(is_open(rounds_.on_answer(7, 0, 20))) << "all three are asked anew";
  EXPECT_TRUE(is_open(rounds_.on_answer(7, 0, 20)));
  EXPECT_TRUE(std::holds_alternative<Over>(rounds_.on_answer(7, 0, 20)));
}

TEST_F(FlushRoundsTest, AtItsDeadlineThereIsNoOtherRound) {
  (void)rounds_.begin(7, 2, 55, 100);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(is_open(rounds_.on_answer(7, 900, 10)));
  const auto outcome = rounds_.on_answer(7, 0, 100);
  const Over* const over = std::get_if<Over>(&outcome);
  ASSERT_NE(over, nullptr);
  EXPECT_EQ(over->status.error().code, Error::timeout);
  EXPECT_THAT(over->status.error().message, HasSubstr("later flushes began"));
}

TEST_F(FlushRoundsTest, AMembersFlushThatIsNotTheNewestIsRefusedWithTheNewest) {
  EXPECT_EQ(rounds_.begin_of_member(9), std::nullopt);
  EXPECT_EQ(rounds_.begin_of_member(9), 9u);
  EXPECT_EQ(rounds_.begin_of_member(6), 9u);
  EXPECT_GT(rounds_.begin(7, 2, 55, 100).number, 9u);
}

}  // namespace
}  // namespace offpath::sift
