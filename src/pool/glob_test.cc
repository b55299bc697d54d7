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

}  // namespace
}  // namespace offpath::pool
