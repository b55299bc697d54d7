#include "sift/settings.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sift/definition.h"
#include "wire/limits.h"

namespace offpath::sift {
namespace {

TEST(SiftSettings, ANameSaysEverything) {
  const auto read = parse_settings(
      "sift:/"
      "tracks?key=id&stages=3&fanout=8&threshold=1MiB&age=250ms&budget=16MiB&credit=4MiB&members=dpu*,arm1&replicas=2");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->pool, "/tracks");
  EXPECT_EQ(read->key, "id");
  EXPECT_EQ(read->stages, 3u);
  EXPECT_EQ(read->fanout_bits(), 3u);
  EXPECT_EQ(read->threshold_bytes, 1u << 20);
  EXPECT_EQ(read->age_ns, 250 * millisecond_ns);
  EXPECT_EQ(read->budget_bytes, 16u << 20);
  EXPECT_EQ(read->credit_bytes, 4u << 20);
  EXPECT_EQ(read->members, "dpu*,arm1");
  EXPECT_EQ(read->replicas, 2u);
  EXPECT_EQ(read->split_bits(1).shift, 0u);
  EXPECT_EQ(read->split_bits(3).shift, 6u);
  EXPECT_EQ(read->track_stage(), 4u);
  EXPECT_EQ(read->elements(4), 512u);
}

TEST(SiftSettings, OnlyTheKeyIsNeeded) {
  const auto read = parse_settings("sift:/t?key=id");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->stages, 1u);
  EXPECT_EQ(read->fanout, 16u);
  EXPECT_EQ(read->budget_bytes, 8 * read->threshold_bytes);
  EXPECT_EQ(read->credit_bytes, read->budget_bytes);
}

TEST(SiftSettings, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> wrong[] = {
      {"hash:/t?key=id", "sift:"},
      {"sift:?key=id", "not a pool's name"},
      {"sift:/t", "key=COLUMN"},
      {"sift:/t?key=", "name=value"},
      {"sift:/t?key=id&key=other", "twice"},
      {"sift:/t?key=id&fanout=12", "fanout=12"},
      {"sift:/t?key=id&fanout=2048", "fanout=2048"},
      {"sift:/t?key=id&fanout=1", "fanout=1"},
      {"sift:/t?key=id&stages=0", "stages=0"},
      {"sift:/t?key=id&stages=5", "20 bits"},
      {"sift:/t?key=id&stages=two", "stages=two"},
      {"sift:/t?key=id&stages=4294967297", "stages=4294967297"},
      {"sift:/t?key=id&threshold=1kB", "threshold=1000"},
      {"sift:/t?key=id&threshold=much", "threshold=much"},
      {"sift:/t?key=id&threshold=1MiB&budget=1kB", "budget=1000"},
      {"sift:/t?key=id&age=5", "age=5"},
      {"sift:/t?key=id&age=0s", "age=0"},
      {"sift:/t?key=id&replicas=0", "replicas=0"},
      {"sift:/t?key=id&colour=red", "colour"},
      {"sift:/t?key=id&by=range&ranges=1,,2", "ranges=1,,2: ascending values"},
      {"sift:/t?key=id&by=range&ranges=5,3", "ranges=5,3: ascending values"},
      {"sift:/t?key=id&by=range&ranges=-1,18446744073709551615,x", "ascending values"},
      {"sift:/t?key=id&spill=yes", "off, on or durable"},
      {"sift:/t?key=id&tracks_budget=1MiB", "with spill=on or spill=durable only"},
      {"sift:/t?key=id&spill=on&tracks_budget=1kB", "tracks_budget=1000"},
      {"sift:/t?key=id&spill=on&replicas=2", "spill=on with replicas=2"},
      {"sift:/t?key=id&spill=durable&tracks_budget=1MiB&replicas=2", "tracks_budget= with replicas=2"},
  };
  for (const auto& [name, expected] : wrong) {
    const auto read = parse_settings(name);
    ASSERT_FALSE(read) << name;
    EXPECT_NE(read.error().message.find(expected), std::string::npos) << name << ": " << read.error().message;
  }
}

TEST(Settings, TracksLeaveMemoryWithSpill) {
  const auto budget = [](const char* name) { return parse_settings(name).value().tracks_budget_bytes; };
  EXPECT_EQ(budget("sift:/t?key=id"), 0u);
  EXPECT_EQ(budget("sift:/t?key=id&spill=durable"), 0u);
  EXPECT_EQ(budget("sift:/t?key=id&spill=on"), 8u * 64 << 20) << "the budget of a stage";
  EXPECT_EQ(budget("sift:/t?key=id&spill=on&tracks_budget=1MiB"), 1u << 20);
  EXPECT_EQ(budget("sift:/t?key=id&spill=durable&tracks_budget=1MiB"), 1u << 20);
  EXPECT_FALSE(parse_settings("sift:/t?key=id&spill=on")->kept());
  EXPECT_TRUE(parse_settings("sift:/t?key=id&stages=2&spill=on&stage1=hosts")->mapped());
}

TEST(Settings, StagesAreMappedBySelectors) {
  const auto read = parse_settings("sift:/t?key=id&stages=2&stage1=hosts&stage3=rack:r1/dpu{1..3},x*");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(read->mapped());
  EXPECT_EQ(read->selectors.at(1), "hosts");
  EXPECT_FALSE(parse_settings("sift:/t?key=id")->mapped());
  const auto refusal = [](std::string_view options) {
    const auto parsed = parse_settings(fmt::format("sift:/t?key=id&{}", options));
    return parsed ? std::string() : parsed.error().message;
  };
  for (const char* kept : {"&replicas=2", "&spill=durable"})
    EXPECT_NE(refusal(fmt::format("stages=2&stage1=hosts{}", kept)).find("that keeps copies cannot be mapped"),
              std::string::npos);
  EXPECT_NE(refusal("stages=2&stage4=hosts").find("there are stage1 to stage3"), std::string::npos);
  EXPECT_NE(refusal("stage0=hosts").find("is not a setting"), std::string::npos);
  EXPECT_NE(refusal("stage1=rack:").find("one rack or a pattern"), std::string::npos);
  EXPECT_NE(refusal("stage1=rack:a,rack:b").find("one rack or a pattern"), std::string::npos);
  EXPECT_NE(refusal("stage1=rack:a/hosts,,b").find("are expected"), std::string::npos);
  EXPECT_NE(refusal("stage1=hosts,rack:b").find("at the beginning"), std::string::npos);
  EXPECT_NE(refusal("stage1=hosts&racks=a").find("RACK:NAMES"), std::string::npos);
  EXPECT_NE(refusal("stage1=hosts&stage01=dpus").find("'stage01' is not a setting"), std::string::npos);
}

// Members name a pool in all messages by a reference to its definition.
TEST(Settings, ANameIsSoLongThatItsReferenceIsAName) {
  const auto named = [](std::size_t bytes) { return fmt::format("sift:/{}?key=id", std::string(bytes - 1, 'x')); };
  const std::size_t longest = wire::pool_bytes_max - reference_more_bytes;
  ASSERT_TRUE(parse_settings(named(longest)));
  EXPECT_EQ(reference_to(named(longest)).size(), wire::pool_bytes_max);
  const auto longer = parse_settings(named(longest + 1));
  ASSERT_FALSE(longer);
  EXPECT_NE(longer.error().message.find("has 976 bytes, at most 975 are allowed"), std::string::npos)
      << longer.error().message;
}

// A few bytes of a name can mean many members.
TEST(Settings, MembersOfAllRacksAreBounded) {
  const auto refusal = [](std::string_view options) {
    const auto parsed = parse_settings(fmt::format("sift:/t?key=id&stage1=hosts&{}", options));
    return parsed ? std::string() : parsed.error().message;
  };
  EXPECT_EQ(refusal("racks=a:a{001..512}|b:b{001..512}&cards=a{001..512}"), "");
  EXPECT_EQ(refusal("cards=a1&racks=a:a1"), "") << "in any order";
  EXPECT_NE(refusal("racks=a:a{001..512}|b:b{001..513}").find("more than 1024 members"), std::string::npos);
  EXPECT_NE(refusal("racks=a:x,y|b:y").find("'y' is listed twice"), std::string::npos);
  EXPECT_NE(refusal("racks=a:x,x").find("'x' is listed twice"), std::string::npos);
  EXPECT_NE(refusal("racks=a:x&cards=z").find("'z' is not one of the members"), std::string::npos);
  EXPECT_NE(refusal("cards=z").find("'z' is not one of the members"), std::string::npos);
  EXPECT_NE(refusal("stage2=x{001..100}*").find("more than 64 patterns"), std::string::npos);
  EXPECT_EQ(refusal("stage2=x{001..100}"), "");
}

}  // namespace
}  // namespace offpath::sift
