#include "sift/definition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace offpath::sift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> alive = {"a", "b", "c1", "c2"};

MemberPlace place_of(const std::string& member) { return {member < "c" ? "r1" : "r2", member == "b"}; }

Result<Definition> defined(std::string_view text) {
  return definition_of(text, parse_settings(text).value(), alive, place_of);
}

TEST(Definition, NamesAllMembersThatLive) {
  const auto made = defined("sift:/t?key=id");
  ASSERT_TRUE(made);
  EXPECT_EQ(made->text, "sift:/t?key=id&members=a,b,c1,c2");
  EXPECT_THAT(made->members, ElementsAre("a", "b", "c1", "c2"));
}

TEST(Definition, PatternsAreThoseThatLiveAndFullNamesNeedNotLive) {
  EXPECT_EQ(defined("sift:/t?key=id&members=c*&wait=2")->text, "sift:/t?key=id&members=c1,c2");
  EXPECT_EQ(defined("sift:/t?members=z,a&key=id")->text, "sift:/t?key=id&members=a,z");
  EXPECT_EQ(defined("sift:/t?key=id&members=x*").error().code, Error::not_found);
}

TEST(Definition, WaitsForAsManyAsItSays) {
  const auto waits = defined("sift:/t?key=id&members=c*&wait=3");
  ASSERT_FALSE(waits);
  EXPECT_EQ(waits.error().code, Error::would_block);
  EXPECT_THAT(waits.error().message, HasSubstr("waits for 3 members, of which 2 live"));
}

TEST(Definition, OptionsThatAreLeftOutDifferInNothing) {
  constexpr const char* existing = "sift:/t?key=id&members=a,b";
  const Settings settings = parse_settings(existing).value();
  for (const char* same :
       {"sift:/t", existing, "sift:/t?key=id", "sift:/t?key=id&members=b,a", "sift:/t?key=id&members=*"})
    EXPECT_TRUE(check_same(same, settings, existing)) << same;
  const Status members = check_same("sift:/t?key=id&members=a,c1", settings, existing);
  ASSERT_FALSE(members);
  EXPECT_THAT(members.error().message, HasSubstr("has the members"));
  const Status options = check_same("sift:/t?key=other", settings, existing);
  ASSERT_FALSE(options);
  EXPECT_THAT(options.error().message, HasSubstr("exists already, as"));
}

TEST(Definition, SaysWhereMembersAreIfStagesAreMapped) {
  const auto made = defined("sift:/t?key=id&stage2=rack:r1&wait=4");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->text, "sift:/t?key=id&stage2=rack:r1&racks=r1:a,b|r2:c{1..2}&cards=b");
  EXPECT_THAT(made->members, ElementsAre("a", "b", "c1", "c2"));
  // Another member, which knows other places, makes the same of it.
  const Settings settings = parse_settings(made->text).value();
  const auto there = definition_of(made->text, settings, {}, {});
  ASSERT_TRUE(there) << there.error().message;
  EXPECT_EQ(there->text, made->text);
  EXPECT_EQ(there->members, made->members);
  EXPECT_EQ(settings.places.at("b").rack, "r1");
  EXPECT_TRUE(settings.places.at("b").is_card);
  EXPECT_EQ(settings.places.at("c2").rack, "r2");
  for (const char* same : {"sift:/t?key=id&stage2=rack:r1", "sift:/t?key=id&stage2=rack:r1&members=*"})
    EXPECT_TRUE(check_same(same, settings, made->text)) << same;
  EXPECT_FALSE(check_same("sift:/t?key=id&stage2=rack:r2", settings, made->text));
  EXPECT_EQ(defined("sift:/t?key=id&stage1=hosts&members=a,z").error().code, Error::would_block)
      << "where z is, nobody knows";
}

TEST(Definition, MoreMembersWinOrElseTheFirstInOrder) {
  EXPECT_TRUE(comes_before("sift:/t?key=id&members=a,b,c", "sift:/t?key=id&members=a,b").value());
  EXPECT_FALSE(comes_before("sift:/t?key=id&members=a,b", "sift:/t?key=id&members=a,b,c").value());
  EXPECT_TRUE(comes_before("sift:/t?key=id&members=a,b", "sift:/t?key=id&members=a,c").value());
  EXPECT_FALSE(comes_before("sift:/t?key=id&nonsense=1", "sift:/t?key=id").has_value());
}

TEST(Definition, AMemberIsFoundByItsWholeName) {
  const Settings settings = parse_settings("sift:/t?key=id&members=ab,c").value();
  EXPECT_TRUE(has_member(settings, "c"));
  EXPECT_FALSE(has_member(settings, "a"));
}

}  // namespace
}  // namespace offpath::sift
