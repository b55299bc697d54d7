#include "pool/glob.h"

#include <gtest/gtest.h>

#include <string>

namespace offpath::pool {
namespace {

TEST(Glob, MatchesAsAShellDoes) {
  EXPECT_TRUE(glob_matches("", "anything"));
  EXPECT_TRUE(glob_matches("*", ""));
  EXPECT_TRUE(glob_matches("step*", "step12"));
  EXPECT_FALSE(glob_matches("step*", "astep12"));
  EXPECT_TRUE(glob_matches("*12", "step12"));
  EXPECT_TRUE(glob_matches("s*p?2", "step12"));
  EXPECT_FALSE(glob_matches("step?", "step12"));
  EXPECT_TRUE(glob_matches("step[0-9][12]", "step12"));
  EXPECT_FALSE(glob_matches("step[!0-9]2", "step12"));
  EXPECT_TRUE(glob_matches("[abc]x", "bx"));
  EXPECT_TRUE(glob_matches("a[", "a["));
  EXPECT_FALSE(glob_matches("ab", "abc"));
  EXPECT_FALSE(glob_matches("abc", "ab"));
  EXPECT_TRUE(glob_matches("a**b", "ab"));
}

TEST(Glob, ManyStarsStayCheap) {
  // A matcher that backtracks into every star would not end in this universe's time.
  std::string pattern, text(4000, 'a');
  for (int i = 0; i < 100; ++i) pattern += "a*";
  EXPECT_FALSE(glob_matches(pattern + "b", text));
  EXPECT_TRUE(glob_matches(pattern, text));
}

TEST(Glob, OfATextMatchesThatTextAlone) {
  for (const char* text : {"step", "s*p", "a[b]c?", "[*]", "[!x]", "]"}) {
    EXPECT_TRUE(glob_matches(literal_glob(text), text)) << text;
    for (const char* other : {"stepp", "sxxp", "abc1", "*", "y"}) EXPECT_FALSE(glob_matches(literal_glob(text), other)) << text << ' ' << other;
  }
}

}  // namespace
TEST(Glob, EveryTextThatMatchesBeginsWithThePrefix) {
  EXPECT_EQ(glob_prefix("step000120"), "step000120");
  EXPECT_EQ(glob_prefix("step*"), "step");
  EXPECT_EQ(glob_prefix("step?0"), "step");
  EXPECT_EQ(glob_prefix("step[0-4]*"), "step");
  EXPECT_EQ(glob_prefix("*"), "");
  EXPECT_EQ(glob_prefix(""), "");
  EXPECT_EQ(glob_prefix("a[b"), "a");  // an unclosed set is itself, so the prefix may be longer: it need not be
}

}  // namespace offpath::pool
