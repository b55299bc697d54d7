#include "pool/directory/glob.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>

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
  // A matcher that backtracks into every star would take exponential time.
  std::string pattern, text(4000, 'a');
  for (int i = 0; i < 100; ++i) pattern += "a*";
  EXPECT_FALSE(glob_matches(pattern + "b", text));
  EXPECT_TRUE(glob_matches(pattern, text));
}

// The definition of a pattern's elements, without regard to time.
bool matches_plainly(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern.front() == '*')
    return matches_plainly(pattern.substr(1), text) || (!text.empty() && matches_plainly(pattern, text.substr(1)));
  if (text.empty()) return false;
  const std::size_t close = pattern.front() == '[' ? pattern.find(']', 2) : std::string_view::npos;
  if (close == std::string_view::npos)
    return (pattern.front() == text.front() || pattern.front() == '?') &&
           matches_plainly(pattern.substr(1), text.substr(1));
  const bool negated = pattern[1] == '!';
  bool found = false;
  for (std::size_t i = negated ? 2 : 1; i < close; ++i) {
    if (i + 2 < close && pattern[i + 1] == '-') {
      found |= pattern[i] <= text.front() && text.front() <= pattern[i + 2];
      i += 2;
    } else {
      found |= pattern[i] == text.front();
    }
  }
  return found != negated && matches_plainly(pattern.substr(close + 1), text.substr(1));
}

TEST(Glob, RandomPatternsMatchWhatTheirElementsSay) {
  std::mt19937 random(7);
  const auto some = [&](std::string_view letters, std::size_t most) {
    std::string made(random() % (most + 1), ' ');
    for (char& each : made) each = letters[random() % letters.size()];
    return made;
  };
  unsigned matched = 0;
  for (int i = 0; i < 200'000; ++i) {
    const std::string pattern = some("ab*?[]!-*", 9), text = some("abb[]*", 7);
    if (pattern.empty()) continue;
    const bool wanted = matches_plainly(pattern, text);
    ASSERT_EQ(glob_matches(pattern, text), wanted) << pattern << " " << text;
    matched += wanted;
  }
  EXPECT_GT(matched, 1000u);
}

TEST(Glob, LongKeysMatchTheirOwnPatternsAndNoOther) {
  const std::string key(64 << 10, '['), other = key.substr(1) + "]";
  EXPECT_TRUE(glob_matches(literal_glob(key), key));
  EXPECT_FALSE(glob_matches(literal_glob(key), other));
  EXPECT_TRUE(glob_matches(key, key));  // none of these sets is closed
  EXPECT_TRUE(check_glob(literal_glob(key) + "*"));
  EXPECT_TRUE(check_glob("*" + literal_glob(key)));
  EXPECT_TRUE(glob_matches("*" + key.substr(7), key));
}

TEST(Glob, WhatLiesBetweenStarsIsBounded) {
  const std::string most(glob_middle_bytes_max - 2, 'a');
  EXPECT_TRUE(check_glob("*" + most + "*"));
  const Status more = check_glob("x*" + most + "a*y");
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().message, "a pattern has 256 bytes from its first * to its last, at most 255 are allowed");
}

TEST(Glob, OfATextMatchesThatTextAlone) {
  for (const char* text : {"step", "s*p", "a[b]c?", "[*]", "[!x]", "]"}) {
    EXPECT_TRUE(glob_matches(literal_glob(text), text)) << text;
    for (const char* other : {"stepp", "sxxp", "abc1", "*", "y"})
      EXPECT_FALSE(glob_matches(literal_glob(text), other)) << text << ' ' << other;
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
  EXPECT_EQ(glob_prefix("a[b"), "a");  // an unclosed set is literal, so the prefix may be longer
}

}  // namespace offpath::pool
