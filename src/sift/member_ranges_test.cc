#include "sift/member_ranges.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>

#include "testing/cpu_time.h"

namespace offpath::sift {
namespace {

using testing::HasSubstr;
using Strings = std::vector<std::string>;

std::string joined(Strings names) {
  std::ranges::sort(names);
  return fmt::format("{}", fmt::join(names, ","));
}

Strings split(std::string_view text) {
  Strings names;
  for (; !text.empty(); text.remove_prefix(std::min(text.size(), text.find(',') + 1)))
    if (names.emplace_back(text.substr(0, text.find(','))); text.find(',') == std::string_view::npos) break;
  return names;
}

TEST(MemberRanges, NamesThatFollowEachOtherAreOneRange) {
  EXPECT_EQ(member_ranges({"dpu1", "dpu2", "dpu3"}), "dpu{1..3}");
  EXPECT_EQ(member_ranges({"a", "b", "c"}), "a,b,c");
  EXPECT_EQ(member_ranges({"n08", "n09", "n10", "n12"}), "n{08..10},n12");
  EXPECT_EQ(member_ranges({"n10", "n8", "n9"}), "n10,n{8..9}") << "as many digits";
  EXPECT_EQ(member_ranges({"r1-c1", "r1-c2", "r2-c1", "r2-c2"}), "r{1..2}-c{1..2}");
  EXPECT_EQ(member_ranges({"r1-c1", "r1-c2", "r2-c1"}), "r1-c{1..2},r2-c1");
  EXPECT_EQ(member_ranges({"x{1..2}", "y1", "y2"}), "x{1..2},y1,y2") << "braces are the names' own";
  EXPECT_EQ(member_ranges({"0123456789012", "0123456789013"}), "0123456789012,0123456789013");
}

TEST(MemberRanges, AThousandNamesFitIntoAPoolsName) {
  Strings names;
  for (int node = 1; node <= 500; ++node)
    for (int card = 0; card < 2; ++card) names.push_back(fmt::format("glinda{:03}-{}", node, card));
  const std::string text = member_ranges(names);
  EXPECT_EQ(text, "glinda{001..500}-{0..1}");
  EXPECT_EQ(joined(split(member_names(text).value())), joined(names));
}

TEST(MemberRanges, WhatIsNoRangeStays) {
  for (const char* text : {"a,b", "dpu*", "a{b}", "a{1..}", "{..2}", "a}1..2{", "{1.2}", ""})
    EXPECT_EQ(member_names(text).value(), text);
  EXPECT_EQ(member_names("{x{1..2}").value(), "{x1,{x2");
}

// The loop reads texts of programs and members: one sixteen times as long may take about as many times longer.
TEST(MemberRanges, BracesThatBeginNoRangeCostWhatTheyAreLong) {
  const auto cpu_ns = [](std::size_t length) {
    const std::string text(length, '{');
    return least_cpu_ns([&] { EXPECT_EQ(member_names(text).value(), text); });
  };
  const TimeNs of_short = cpu_ns(20'000);
  EXPECT_LT(cpu_ns(320'000), 64 * of_short);
}

TEST(MemberRanges, WrongRangesAreRefused) {
  for (const char* text : {"n{2..1}", "n{9..10}", "n{01..1}"})
    EXPECT_THAT(member_names(text).error().message, HasSubstr("ascending numbers of as many digits"));
  EXPECT_EQ(member_names("n{0000..9999}").error().code, Error::too_large);
  EXPECT_EQ(member_names("{0..9}{0..9}{0..9}{0..9}{0..9}{0..9}{0..9}{0..9}{0..9}").error().code, Error::too_large);
}

TEST(MemberRanges, AnyNamesComeBack) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2'000; ++round) {
    Strings names;
    for (std::uint64_t i = 0, count = 1 + random() % 30; i < count; ++i) {
      std::string name;
      for (std::uint64_t part = 0, parts = 1 + random() % 4; part < parts; ++part)
        name += random() % 2 == 0 ? fmt::format("{:0{}}", random() % 12, 1 + random() % 3)
                                  : std::string(1, "ab-"[random() % 3]);
      names.push_back(name);
    }
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    EXPECT_EQ(joined(split(member_names(member_ranges(names)).value())), joined(names));
  }
}

// Each number takes a pass over all names, so members cannot make others process as many as fit into a name.
TEST(MemberRanges, OnlyTheFirstEightNumbersOfANameAreJoined) {
  EXPECT_EQ(member_ranges({"1-1-1-1-1-1-1-1", "1-1-1-1-1-1-1-2"}), "1-1-1-1-1-1-1-{1..2}");
  EXPECT_EQ(member_ranges({"1-1-1-1-1-1-1-1-1", "1-1-1-1-1-1-1-1-2"}), "1-1-1-1-1-1-1-1-1,1-1-1-1-1-1-1-1-2");
  EXPECT_EQ(member_ranges({"1-1-1-1-1-1-1-1-1", "2-1-1-1-1-1-1-1-1"}), "{1..2}-1-1-1-1-1-1-1-1");
}

}  // namespace
}  // namespace offpath::sift
