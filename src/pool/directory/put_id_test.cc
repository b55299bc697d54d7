#include "pool/directory/put_id.h"

#include <gtest/gtest.h>

namespace offpath::pool {
namespace {

TEST(PutId, TheLargerCounterIsLaterThenTheLargerWriter) {
  const PutId first{7, 1, 10}, second{3, 1, 11}, other{9, 1, 10};
  EXPECT_LT(first.version(), second.version());
  EXPECT_LT(first.version(), other.version());
}

TEST(PutId, KnowsWhatItReplacedAndWhatThatReplaced) {
  const PutId first{7, 1, 10}, aside{5, 1, 11};
  PutId second{3, 1, 12}, third{9, 1, 13};
  EXPECT_FALSE(second.knows(first.version()));
  second.learn(first);
  third.learn(second);
  EXPECT_TRUE(third.knows(first.version()) && third.knows(second.version()));
  EXPECT_FALSE(third.knows(aside.version())) << "that was put on another side";
  EXPECT_FALSE(third.knows({14, 3})) << "the writer's next one";
  EXPECT_TRUE(PutId({7, 2, 20}).knows(first.version())) << "a writer knows its own";
}

TEST(PutId, RemembersAFewWriters) {
  PutId last{100, 1, 100};
  for (std::uint64_t writer = 1; writer <= puts_over_max + 3; ++writer) last.learn({writer, 1, 10 + writer});
  EXPECT_EQ(last.over.size(), puts_over_max);
  EXPECT_FALSE(last.knows({11, 1})) << "the oldest is forgotten";
  EXPECT_TRUE(last.knows({10 + puts_over_max + 3, puts_over_max + 3}));
}

TEST(PutId, BytesOfOthersAreChecked) {
  const std::vector<Version> over{{10, 7}, {put_counter_max, 3}};
  EXPECT_EQ(decode_over(encode_over(over)), over);
  EXPECT_FALSE(decode_over(encode_over({{put_counter_max + 1, 7}})));
  EXPECT_FALSE(decode_over(Bytes(encode_over(over)).first(31)));
  EXPECT_FALSE(decode_over(encode_over(std::vector<Version>(puts_over_max + 1))));
}

}  // namespace
}  // namespace offpath::pool
