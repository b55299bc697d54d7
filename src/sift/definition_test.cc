#include "sift/definition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/hash/mix.h"
#include "wire/messages/peer_messages.h"

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
  EXPECT_THAT(waits.error().message, HasSubstr("waits for 3 members, of which 2 are alive"));
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
  // A member that knows other places makes the same definition.
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

// Members would refuse the definition, and programs would hear of it when they put.
TEST(Definition, NamesThatNoMemberHasAreRefused) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{256}}) {
    const auto made = defined(fmt::format("sift:/t?key=id&members=a,{},b", std::string(bytes, 'x')));
    ASSERT_FALSE(made);
    EXPECT_THAT(made.error().message, HasSubstr(fmt::format("a name of {} bytes, 1 to 255 are expected", bytes)));
  }
  EXPECT_TRUE(defined(fmt::format("sift:/t?key=id&members=a,{}", std::string(255, 'x'))));
}

TEST(Definition, ThatIsNamedWithPlacesDoesNotTellOthersToWait) {
  constexpr const char* text = "sift:/t?key=id&stage2=rack:r1&wait=2&racks=r1:a,b|r2:c{1..2}&cards=b";
  const auto made = defined(text);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->text, "sift:/t?key=id&stage2=rack:r1&racks=r1:a,b|r2:c{1..2}&cards=b");
  const auto read = decode_definition(encode_definition(made->text));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, made->text);
  EXPECT_TRUE(check_same(text, parse_settings(made->text).value(), made->text)) << "it names the same pool again";
}

TEST(Definition, MoreMembersWinOrElseTheFirstInOrder) {
  EXPECT_TRUE(comes_before("sift:/t?key=id&members=a,b,c", "sift:/t?key=id&members=a,b").value());
  EXPECT_FALSE(comes_before("sift:/t?key=id&members=a,b", "sift:/t?key=id&members=a,b,c").value());
  EXPECT_TRUE(comes_before("sift:/t?key=id&members=a,b", "sift:/t?key=id&members=a,c").value());
  EXPECT_FALSE(comes_before("sift:/t?key=id&nonsense=1", "sift:/t?key=id").has_value());
}

TEST(Definition, AnAgentThatIsNamedIsAllOfItsCores) {
  const std::vector<std::string> living{"a", "a+1", "b", "c", "c+1"};
  const auto made =
      definition_of("sift:/t?key=id&members=b,a", parse_settings("sift:/t?key=id&members=b,a").value(), living, {});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->members, (std::vector<std::string>{"a", "a+1", "b"}));
  const Settings existing = parse_settings(made->text).value();
  EXPECT_TRUE(check_same("sift:/t?key=id&members=a,b", existing, made->text)) << "as its program names it";
  EXPECT_FALSE(check_same("sift:/t?key=id&members=a,c", existing, made->text));
  EXPECT_FALSE(check_same("sift:/t?key=id&members=a+1,b", existing, made->text));
  const auto again = decode_definition(encode_definition(made->text));
  EXPECT_TRUE(again) << (again ? "" : again.error().message);
}

TEST(Definition, APoolWaitsForAgentsAndNotForTheirCores) {
  const char* const text = "sift:/t?key=id&wait=2";
  const auto early = definition_of(text, parse_settings(text).value(), std::vector<std::string>{"a", "a+1"}, {});
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, Error::would_block);
  EXPECT_TRUE(definition_of(text, parse_settings(text).value(), std::vector<std::string>{"a", "a+1", "b"}, {}));
}

TEST(Definition, AMemberIsFoundByItsWholeName) {
  const Settings settings = parse_settings("sift:/t?key=id&members=ab,c").value();
  EXPECT_TRUE(has_member(settings, "c"));
  EXPECT_FALSE(has_member(settings, "a"));
}

// Irregular names of so many bytes, sorted.
std::vector<std::string> thousand_names(std::size_t bytes) {
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    std::string name = fmt::format("m{:016x}.", mix(i));
    name.resize(bytes, 'x');
    names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

TEST(Definition, OfAThousandMembersIsAnObjectWithAShortReference) {
  for (const std::size_t bytes : {std::size_t{20}, std::size_t{63}})
    for (const char* const text : {"sift:/t?key=id&stages=2&fanout=32", "sift:/t?key=id&stage2=rack:*&wait=1000"}) {
      const std::vector<std::string> names = thousand_names(bytes);
      const auto place = [&](const std::string& member) { return MemberPlace{member.substr(0, 2), member[2] < '8'}; };
      const auto made = definition_of(text, parse_settings(text).value(), names, place);
      ASSERT_TRUE(made) << made.error().message;
      EXPECT_EQ(made->members, names);
      EXPECT_GT(made->text.size(), 1000 * bytes) << "each name is there";
      const std::vector<std::byte> object = encode_definition(made->text);
      EXPECT_LE(object.size(), wire::definition_bytes_max);
      const auto again = decode_definition(object);
      ASSERT_TRUE(again) << again.error().message;
      EXPECT_EQ(*again, made->text);
      const std::string reference = reference_to(made->text);
      EXPECT_EQ(reference.size(), std::string("sift:/t?definition=").size() + 32);
      EXPECT_TRUE(is_reference(reference));
      EXPECT_EQ(name_in(reference), "sift:/t");
      EXPECT_EQ(reference, reference_to(*again));
      std::string other = made->text;
      other[other.find("xx") + 1] = 'y';
      EXPECT_NE(reference, reference_to(other));
    }
}

TEST(Definition, AnObjectThatIsNotAsMembersWriteItIsRefused) {
  const auto refusal = [](std::string_view text) {
    const auto read = decode_definition(encode_definition(text));
    return read ? std::string() : read.error().message;
  };
  EXPECT_EQ(refusal("sift:/t?key=id&members=a,b"), "");
  EXPECT_EQ(refusal("sift:/t?key=id&stage2=rack:r1&racks=r1:a,b|r2:c{1..2}&cards=b"), "");
  EXPECT_THAT(refusal("sift:/t?key=id"), HasSubstr("does not name its members"));
  EXPECT_THAT(refusal("sift:/t?key=id&members=a*"), HasSubstr("does not name its members"));
  EXPECT_THAT(refusal("sift:/t?key=id&wait=2&members=a,b"), HasSubstr("does not name its members"));
  EXPECT_THAT(refusal("sift:/t?key=id&by=range&ranges=sample&members=a"),
              HasSubstr("does not name its members, or its ranges"));
  EXPECT_THAT(refusal("sift:/t?key=id&members=b,a"), HasSubstr("is not in the form that members write"));
  EXPECT_THAT(refusal("sift:/t?members=a,b&key=id"), HasSubstr("is not in the form that members write"));
  EXPECT_THAT(refusal("sift:/t?key=id&members=a,a"), HasSubstr("is not in the form that members write"));
  EXPECT_THAT(refusal("sift:/t?key=id&members=a,,b"), HasSubstr("a name of 0 bytes"));
  EXPECT_THAT(refusal(fmt::format("sift:/t?key=id&members={}", std::string(256, 'a'))), HasSubstr("256 bytes"));
  EXPECT_THAT(refusal("sift:/t?key=id&members=n{0000..1024}"), HasSubstr("more than 1024"));
  EXPECT_THAT(refusal("sift:/t?definition=00&members=a"), HasSubstr("'definition' is not a setting"));
  std::vector<std::byte> object = encode_definition("sift:/t?key=id&members=a,b");
  for (std::size_t bytes = 0; bytes < object.size(); ++bytes)
    EXPECT_FALSE(decode_definition(Bytes(object).first(bytes))) << bytes;
  object.push_back(std::byte{'c'});
  EXPECT_THAT(decode_definition(object).error().message, HasSubstr("not a definition of a sift pool"));
  object.pop_back();
  object[4] = std::byte{2};
  EXPECT_EQ(decode_definition(object).error().code, Error::version);
}

}  // namespace
}  // namespace offpath::sift
