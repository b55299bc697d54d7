#include "channel/agent/owed_wakes.h"

#include <gtest/gtest.h>

namespace offpath::channel {
namespace {

using wire::WakeWord;

constexpr std::uint32_t asked_stream = 2;
wire::CompletionLine line(std::uint64_t pulled, std::uint64_t stored = 0, std::uint64_t credit = 0) {
  wire::CompletionLine made{};
  made.pulled = pulled;
  made.stored = stored;
  made.credit = credit;
  return made;
}

class OwedWakesTest : public testing::Test {
 protected:
  OwedWakes wakes{4};
};

TEST_F(OwedWakesTest, AreOwedWhenTheWordIsWritten) {
  EXPECT_FALSE(wakes.ask({asked_stream, WakeWord::stored, 5}, line(9, 4)));
  EXPECT_FALSE(wakes.owed());
  wakes.settle(asked_stream, line(9, 4));
  EXPECT_FALSE(wakes.owed()) << "another word has the value";
  wakes.settle(asked_stream, line(9, 5));
  EXPECT_TRUE(wakes.owed());
  EXPECT_TRUE(wakes.take());
  EXPECT_FALSE(wakes.take());
  wakes.settle(asked_stream, line(9, 6));
  EXPECT_FALSE(wakes.owed()) << "one wake for each request";
}

TEST_F(OwedWakesTest, TheSmallestValueCounts) {
  EXPECT_FALSE(wakes.ask({asked_stream, WakeWord::credit, 8}, line(0)));
  EXPECT_FALSE(wakes.ask({asked_stream, WakeWord::credit, 3}, line(0)));
  EXPECT_FALSE(wakes.ask({asked_stream, WakeWord::credit, 6}, line(0)));
  wakes.settle(asked_stream, line(0, 0, 3));
  EXPECT_TRUE(wakes.take());
}

TEST_F(OwedWakesTest, AValueThatIsReachedAlreadyIsWrittenAgain) {
  EXPECT_TRUE(wakes.ask({asked_stream, WakeWord::pulled, 4}, line(4)));
  EXPECT_FALSE(wakes.owed()) << "before that";
  wakes.settle(asked_stream, line(4));
  EXPECT_TRUE(wakes.take());
}

TEST_F(OwedWakesTest, AValueThatWasReachedBeforeTheNextWasAskedForIsOwed) {
  EXPECT_FALSE(wakes.ask({asked_stream, WakeWord::pulled, 4}, line(3)));
  EXPECT_FALSE(wakes.ask({asked_stream, WakeWord::pulled, 9}, line(4)));
  EXPECT_TRUE(wakes.take()) << "the program saw 4 before its wake";
  wakes.settle(asked_stream, line(8));
  EXPECT_FALSE(wakes.owed());
  wakes.settle(asked_stream, line(9));
  EXPECT_TRUE(wakes.owed());
}

TEST_F(OwedWakesTest, ThoseOfAFormerStreamAreOwedWhenItsNumberIsReused) {
  wakes.forget(asked_stream);
  EXPECT_FALSE(wakes.owed()) << "nobody waits";
  EXPECT_FALSE(wakes.ask({asked_stream, WakeWord::stored, 5}, line(0)));
  wakes.forget(asked_stream);
  EXPECT_TRUE(wakes.take());
  wakes.settle(asked_stream, line(0, 5));
  EXPECT_FALSE(wakes.owed());
}

TEST_F(OwedWakesTest, RepliesBeyondAPositionWake) {
  wakes.ask_replies(3, 3);
  wakes.settle_replies(3, false);
  EXPECT_FALSE(wakes.owed());
  wakes.settle_replies(4, false);
  EXPECT_TRUE(wakes.take());
  wakes.settle_replies(5, false);
  EXPECT_FALSE(wakes.owed());
}

TEST_F(OwedWakesTest, ARequestForNowIsPaidOnce) {
  wakes.ask_now();
  EXPECT_FALSE(wakes.owed()) << "what was taken before is to be written first";
  wakes.settle_replies(0, false);
  EXPECT_TRUE(wakes.take());
  wakes.settle_replies(0, false);
  EXPECT_FALSE(wakes.owed());
}

TEST_F(OwedWakesTest, AFullRingWakesItsReaderOnceAtEachPosition) {
  wakes.settle_replies(7, true);
  EXPECT_TRUE(wakes.take());
  wakes.settle_replies(7, true);
  EXPECT_FALSE(wakes.owed());
  wakes.settle_replies(9, true);
  EXPECT_TRUE(wakes.owed());
}

}  // namespace
}  // namespace offpath::channel
