#include "sift/split/geometry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace offpath::sift {
namespace {

std::vector<std::string> names(std::uint32_t count) {
  std::vector<std::string> all;
  for (std::uint32_t i = 0; i < count; ++i) all.push_back(fmt::format("dpu{:03}", i));
  return all;
}

Settings settings_of(std::uint32_t stages, std::uint32_t fanout) {
  return parse_settings(fmt::format("sift:/t?key=id&stages={}&fanout={}", stages, fanout)).value();
}

TEST(Geometry, NoMemberGetsMoreThanItsShareOfAnyStage) {
  for (const std::uint32_t members : {1U, 3U, 16U, 100U})
    for (const auto& [stages, fanout] : {std::pair{1U, 128U}, {2U, 16U}, {4U, 4U}, {4U, 16U}}) {
      const Geometry geometry = Geometry::make(settings_of(stages, fanout), names(members)).value();
      for (std::uint32_t stage = 2; stage <= stages + 1; ++stage) {
        const std::uint32_t all = geometry.settings().elements(stage) * geometry.lanes(stage);
        std::map<std::uint32_t, std::uint32_t> held;
        for (std::uint32_t index = 0; index < geometry.settings().elements(stage); ++index)
          for (std::uint32_t lane = 0; lane < geometry.lanes(stage); ++lane)
            ++held[geometry.holder({stage, index}, lane)];
        for (const auto& [member, count] : held) EXPECT_LE(count, (all + members - 1) / members) << stage;
        if (stage <= stages) {
          EXPECT_GE(all, members) << "everybody works in stage " << stage;
        }
      }
    }
}

TEST(Geometry, TheOrderOfStagesIsTheOrderOfBits) {
  const Geometry geometry = Geometry::make(settings_of(3, 4), names(5)).value();
  const std::uint64_t identifier = 0b11'01'10'11;
  ElementId element;
  for (std::uint32_t stage = 1; stage <= 3; ++stage)
    element = geometry.next(element, geometry.settings().split_bits(stage).part_of(identifier));
  EXPECT_EQ(element, (ElementId{4, 0b01'10'11}));
  EXPECT_EQ(element, geometry.track_element(identifier));
}

TEST(Geometry, SourcesAreThoseWhoSend) {
  for (const std::uint32_t members : {1U, 7U, 30U}) {
    const Geometry geometry = Geometry::make(settings_of(2, 8), names(members)).value();
    for (std::uint32_t stage = 1; stage <= 2; ++stage)
      for (std::uint32_t source = 0; source < members; ++source)
        for (const std::uint32_t index : geometry.elements_of(source, stage))
          for (std::uint32_t part = 0; part < 8; ++part) {
            const ElementId next = geometry.next({stage, index}, part);
            const std::uint32_t to = geometry.owner(next, source);
            EXPECT_TRUE(geometry.holds(to, next));
            const bool sends = stage == 1 || !geometry.sources({stage, index}, source).empty();
            EXPECT_EQ(std::ranges::count(geometry.sources(next, to), source), sends ? 1 : 0);
          }
  }
}

TEST(Geometry, MostAgentsWorkInEveryStage) {
  for (const auto& [stages, fanout] : {std::pair{1U, 128U}, {2U, 16U}, {4U, 4U}}) {
    const Geometry geometry = Geometry::make(settings_of(stages, fanout), names(100)).value();
    for (std::uint32_t stage = 2; stage <= stages + 1; ++stage) {
      std::uint32_t working = 0;
      for (std::uint32_t member = 0; member < 100; ++member) {
        const auto held = geometry.elements_of(member, stage);
        working += std::ranges::any_of(
                       held, [&](std::uint32_t index) { return !geometry.sources({stage, index}, member).empty(); })
                       ? 1
                       : 0;
      }
      EXPECT_GE(working, 63u) << "of 100 in stage " << stage << " with fanout " << fanout;
    }
  }
}

TEST(Geometry, AMemberThatLeavesMovesLittleMoreThanWhatItHeld) {
  std::vector<std::string> all = names(50);
  std::vector<std::string> fewer = all;
  fewer.erase(fewer.begin() + 17);
  const auto before = place_elements(5, 1000, all), after = place_elements(5, 1000, fewer);
  std::uint32_t moved = 0;
  for (std::size_t i = 0; i < before.size(); ++i) moved += all[before[i]] != fewer[after[i]] ? 1 : 0;
  EXPECT_GE(moved, 20u);
  EXPECT_LE(moved,
            200u);  // of 1,000; without the bound it would be about 20, modulo the number of members it would be 980
}

TEST(Geometry, MembersAreSortedAndThereAreSome) {
  EXPECT_FALSE(Geometry::make(settings_of(1, 2), {}));
  EXPECT_FALSE(Geometry::make(settings_of(1, 2), {"b", "a"}));
  EXPECT_FALSE(Geometry::make(settings_of(1, 2), {"a", "a"}));
  const Geometry geometry = Geometry::make(settings_of(1, 2), {"a", "b"}).value();
  EXPECT_EQ(geometry.position_of("b"), 1u);
  EXPECT_EQ(geometry.position_of("c"), 2u);
  EXPECT_EQ(geometry.position_of(""), 2u);
  EXPECT_FALSE(geometry.holds(0, {0, 0}));
  EXPECT_FALSE(geometry.holds(0, {3, 0}));
  EXPECT_FALSE(geometry.holds(0, {2, 2}));
}

}  // namespace
}  // namespace offpath::sift
