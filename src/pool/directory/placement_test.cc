#include "pool/directory/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace offpath::pool {
namespace {

std::vector<std::string> dpus(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(fmt::format("dpu{:02}", i));
  return names;
}

std::string refusal(std::string_view text) {
  const auto parsed = parse_pool_name(text);
  return parsed ? "" : parsed.error().message;
}

TEST(PoolName, OptionsComeBackAsTheyWereSaid) {
  const auto parsed = parse_pool_name(
      "hash:/particles?members=dpu*,x&replicas=2&budget=4GiB&ttl=250ms&overwrite=no&readers=1000,7&spill=durable");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->name, "hash:/particles");
  EXPECT_EQ(parsed->policy, Policy::hash);
  EXPECT_EQ(parsed->options.members, (std::vector<std::string>{"dpu*", "x"}));
  EXPECT_EQ(parsed->options.replicas, 2u);
  EXPECT_EQ(parsed->options.budget_bytes, 4ull << 30);
  EXPECT_EQ(parsed->options.ttl_ns, 250 * millisecond_ns);
  EXPECT_FALSE(parsed->options.overwrite);
  EXPECT_EQ(parsed->options.readers, (std::vector<uid_t>{1000, 7}));
  EXPECT_EQ(parsed->options.spill, Spill::durable);
  const auto again = parse_pool_name(parsed->text());
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->options, parsed->options);
  EXPECT_EQ(parse_pool_name("local:/a")->text(), "local:/a");
  EXPECT_FALSE(parse_pool_name("local:/a")->has_options);
}

TEST(PoolName, WhatIsWrongIsNamed) {
  EXPECT_EQ(refusal("particles"), "pool \"particles\": a pool's name begins with one of local:/ hash:/ rank:/ tag:/");
  EXPECT_EQ(refusal("disk:/a"), "pool \"disk:/a\": a pool's name begins with one of local:/ hash:/ rank:/ tag:/");
  EXPECT_EQ(refusal("hash:/"), "pool \"hash:/\" has no name");
  EXPECT_EQ(refusal("hash:/a?replicas"), "pool \"hash:/a\": option \"replicas\" has no value");
  EXPECT_EQ(refusal("hash:/a?replicas=9"), "pool \"hash:/a\": replicas: \"9\" is not a number from 1 to 8");
  EXPECT_EQ(refusal("hash:/a?ttl=1us"), "pool \"hash:/a\": ttl: \"1us\" is less than 1ms");
  EXPECT_EQ(refusal("hash:/a?spill=yes"), "pool \"hash:/a\": spill: \"yes\" is not one of off, on, durable");
  EXPECT_EQ(refusal("hash:/a?copies=2"),
            "pool \"hash:/a\": copies: there is no such option; the options are: members, replicas, min_copies, "
            "budget, ttl, overwrite, readers, spill");
  EXPECT_EQ(refusal("local:/a?replicas=2"), "pool \"local:/a\": a local pool has neither members nor replicas");
  EXPECT_NE(refusal("hash:/" + std::string(2000, 'a')), "");
}

TEST(Placement, MembersAreChosenByTheirNames) {
  PoolOptions options;
  options.members = {"dpu0?", "x"};
  EXPECT_EQ(members_of(options, std::vector<std::string>{"dpu01", "dpu10", "x", "y"}),
            (std::vector<std::string>{"dpu01", "x"}));
  EXPECT_TRUE(owners_of(Policy::hash, 1, "row", {}).empty());
}

TEST(PoolName, ThereCannotBeMoreCopiesThanReplicas) {
  const auto parsed = parse_pool_name("hash:/a?replicas=3&min_copies=2");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->options.min_copies, 2u);
  EXPECT_EQ(parsed->text(), "hash:/a?replicas=3&min_copies=2");
  EXPECT_EQ(parse_pool_name("hash:/a?min_copies=2").error().message,
            "pool \"hash:/a\": min_copies: 2 of 1 replicas; there cannot be more copies than replicas");
}

TEST(Placement, APatternOfAnAgentIsOneOfAllItsCores) {
  const std::vector<std::string> alive{"a", "a+1", "b", "b+1", "c"};
  PoolOptions options;
  options.members = {"b", "c"};
  EXPECT_EQ(members_of(options, alive), (std::vector<std::string>{"b", "b+1", "c"}));
  options.members = {"a+1"};
  EXPECT_EQ(members_of(options, alive), std::vector<std::string>{"a+1"});
}

TEST(Placement, CopiesAreOnDifferentAgentsAndNotOnTwoCoresOfOne) {
  const std::vector<std::string> two_agents{"a", "a+1", "a+2", "b", "b+1"}, one_agent{"a", "a+1", "a+2"};
  std::map<std::string, int> rows;
  for (const Policy policy : {Policy::hash, Policy::rank, Policy::tag})
    for (int i = 0; i < 3000; ++i) {
      const auto row = fmt::format("{{{}}}step{}", i, i);
      const auto owners = owners_of(policy, 2, row, two_agents);
      ASSERT_EQ(owners.size(), 2u) << row;
      EXPECT_NE(owners[0].front(), owners[1].front()) << row;
      EXPECT_EQ(owners_of(policy, 3, row, one_agent).size(), 1u) << "one agent is one copy";
      ++rows[owners[0]];
    }
  EXPECT_EQ(rows.size(), 5u) << "all cores have rows";
  for (const auto& [member, count] : rows) EXPECT_GT(count, 1000) << member;
}

TEST(Placement, RowsOfALocalPoolAreSpreadOverTheCoresOfItsAgent) {
  const std::vector<std::string> cores{"a", "a+1"};
  std::map<std::string, int> rows;
  for (int i = 0; i < 1000; ++i) ++rows[owners_of(Policy::local, 1, fmt::format("step{}", i), cores).at(0)];
  EXPECT_NEAR(rows["a"], 500, 100);
  EXPECT_EQ(owners_of(Policy::local, 1, "row", std::vector<std::string>{"a"}), std::vector<std::string>{"a"});
}

// Fixed values: agents of other versions place rows too, and files on disk outlive versions.
TEST(Placement, HashesAreTheSameEverywhereAndForEver) {
  EXPECT_EQ(hash_of(""), 0xF52A'15E9'A9B5'E89Bu);
  EXPECT_EQ(hash_of("row17"), 0xE6B1'628B'1873'F325u);
  EXPECT_EQ(owners_of(Policy::hash, 4, "step1", dpus(4)),
            (std::vector<std::string>{"dpu02", "dpu03", "dpu01", "dpu00"}));
}

TEST(Placement, HashSpreadsRowsEvenlyAndReplicasOverDifferentMembers) {
  const auto members = dpus(10);
  std::map<std::string, int> rows;
  for (int i = 0; i < 10'000; ++i) {
    const auto owners = owners_of(Policy::hash, 3, fmt::format("step{}", i), members);
    ASSERT_EQ(owners.size(), 3u);
    ASSERT_TRUE(owners[0] != owners[1] && owners[1] != owners[2] && owners[0] != owners[2]);
    ++rows[owners[0]];
  }
  for (const auto& [member, count] : rows) EXPECT_NEAR(count, 1000, 150) << member;
  EXPECT_EQ(owners_of(Policy::hash, 3, "row", dpus(2)).size(), 2u);
}

TEST(Placement, OneMemberMoreOrLessMovesItsShareOfRowsAndNoOther) {
  const auto many = dpus(10);
  auto fewer = many;
  fewer.erase(fewer.begin() + 4);
  int moved = 0;
  for (int i = 0; i < 10'000; ++i) {
    const auto row = fmt::format("step{}", i);
    const auto before = owners_of(Policy::hash, 1, row, many), after = owners_of(Policy::hash, 1, row, fewer);
    if (before[0] == "dpu04")
      ++moved;
    else
      ASSERT_EQ(before, after) << row;
  }
  EXPECT_NEAR(moved, 1000, 150);
}

TEST(Placement, RankAndTagAreWhatTheRowSays) {
  const auto members = dpus(4);
  EXPECT_EQ(owners_of(Policy::rank, 1, "rank6", members), std::vector<std::string>{"dpu02"});
  EXPECT_EQ(owners_of(Policy::rank, 2, "7", members), (std::vector<std::string>{"dpu03", "dpu00"}));
  EXPECT_EQ(owners_of(Policy::rank, 1, "none", members), owners_of(Policy::hash, 1, "none", members));
  EXPECT_EQ(owners_of(Policy::tag, 1, "{5}step77", members), std::vector<std::string>{"dpu01"});
  EXPECT_EQ(owners_of(Policy::tag, 1, "{a}step1", members), owners_of(Policy::tag, 1, "{a}step2", members));
  EXPECT_EQ(owners_of(Policy::tag, 1, "plain", members), owners_of(Policy::hash, 1, "plain", members));
}

}  // namespace
}  // namespace offpath::pool
