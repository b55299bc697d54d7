#include "sift/element.h"

#include <gtest/gtest.h>

namespace offpath::sift {
namespace {

Source life(std::uint64_t incarnation) { return {"dpu0", incarnation}; }

TEST(SourceHistory, RemembersWhatALifeSent) {
  SourceHistory history;
  (*history.life(life(7)))->take(1);
  EXPECT_TRUE((*history.life(life(7)))->has(1));
  EXPECT_FALSE((*history.life(life(8)))->has(1));
}

// A process draws its number at random: a later one may be the smallest of all.
TEST(SourceHistory, TakesFromTheNewestLifeWhateverItsNumber) {
  SourceHistory history;
  for (std::uint64_t started = 0; started < 3 * SourceHistory::lives_max; ++started) {
    const auto taken = history.life(life(1000 - started));
    ASSERT_TRUE(taken) << taken.error().message;
    EXPECT_FALSE((*taken)->has(1));
    (*taken)->take(1);
  }
}

TEST(SourceHistory, TakesNothingOfALifeItForgot) {
  SourceHistory history;
  for (std::uint64_t started = 0; started <= SourceHistory::lives_max; ++started)
    ASSERT_TRUE(history.life(life(5 * started)));
  EXPECT_EQ(history.life(life(0)).error().code, Error::stale);
  EXPECT_TRUE(history.life(life(5)));
}

}  // namespace
}  // namespace offpath::sift
