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

// Fixed values: members of other versions place elements too.
TEST(Geometry, ElementsArePlacedAlikeEverywhere) {
  EXPECT_EQ(place_elements(7, 12, std::vector<std::string>{"dpu0", "dpu1", "dpu2"}),
            (std::vector<std::uint32_t>{2, 2, 0, 2, 2, 0, 1, 1, 0, 0, 1, 1}));
}

// Hosts and cards in racks: "host00" and "dpu00" are in rack 0, and so on.
struct Machines {
  explicit Machines(std::uint32_t racks, std::uint32_t of_rack) {
    for (const char* role : {"dpu", "host"})
      for (std::uint32_t i = 0; i < racks * of_rack; ++i) {
        names.push_back(fmt::format("{}{:02}", role, i));
        places[names.back()] = {fmt::format("r{}", i / of_rack), role[0] == 'd'};
      }
  }
  [[nodiscard]] Settings settings(std::string_view options) const {
    Settings settings = parse_settings(fmt::format("sift:/t?key=id&{}", options)).value();
    settings.places = places;
    return settings;
  }
  [[nodiscard]] Geometry geometry(std::string_view options) const {
    return Geometry::make(settings(options), names).value();
  }
  [[nodiscard]] const MemberPlace& place(std::uint32_t member) const { return places.at(names[member]); }

  std::vector<std::string> names;
  std::map<std::string, MemberPlace> places;
};

// The shares of all pieces from a stage to the next one that stay with their member, and in their rack, if rows are
// spread evenly.
struct Near {
  std::uint32_t all = 0, same_member = 0, same_rack = 0;
};
Near near_of(const Machines& machines, const Geometry& geometry, std::uint32_t stage) {
  Near near;
  for (std::uint32_t source = 0; source < machines.names.size(); ++source)
    for (const std::uint32_t index : geometry.elements_of(source, stage)) {
      if (stage > 1 && geometry.sources({stage, index}, source).empty()) continue;
      for (std::uint32_t part = 0; part < geometry.settings().fanout; ++part) {
        const std::uint32_t to = geometry.owner(geometry.next({stage, index}, part), source);
        ++near.all;
        near.same_member += to == source ? 1 : 0;
        near.same_rack += machines.place(to).rack == machines.place(source).rack ? 1 : 0;
      }
    }
  return near;
}

TEST(Geometry, StagesAreHeldByTheMembersThatTheUserSelects) {
  const Machines machines(2, 4);
  const Geometry geometry = machines.geometry("stages=2&fanout=4&stage1=hosts&stage2=rack:*/dpus&stage3=rack:r1");
  std::map<std::uint32_t, std::vector<std::uint32_t>> held;  // members of each stage
  for (std::uint32_t member = 0; member < 16; ++member)
    for (std::uint32_t stage = 1; stage <= 3; ++stage)
      if (!geometry.elements_of(member, stage).empty()) held[stage].push_back(member);
  for (const std::uint32_t member : held[1]) EXPECT_FALSE(machines.place(member).is_card);
  for (const std::uint32_t member : held[2]) EXPECT_TRUE(machines.place(member).is_card);
  for (const std::uint32_t member : held[3]) EXPECT_EQ(machines.place(member).rack, "r1");
  EXPECT_EQ(held[1].size(), 8u);
  EXPECT_EQ(held[2].size(), 8u) << "each rack's four cards have an element each";
  EXPECT_EQ(held[3].size(), 8u) << "hosts and cards of that rack";
  for (std::uint32_t index = 0; index < 16; ++index)
    EXPECT_TRUE(geometry.holds(geometry.owner({3, index}), {3, index}));
}

// As in figure 5 of the paper: pieces of the first stage stay in the rack, and parts of an element stay with it.
TEST(Geometry, NeighbouringElementsAreClose) {
  const Machines machines(4, 4);
  constexpr const char* shape = "stages=3&fanout=4";
  const Geometry spread = machines.geometry(shape);
  const Geometry mapped = machines.geometry(fmt::format("{}&stage2=rack:*", shape));
  const Near first = near_of(machines, mapped, 1);
  EXPECT_EQ(first.same_rack, first.all);
  EXPECT_LT(near_of(machines, spread, 1).same_rack * 2, first.all) << "by hashes about a quarter";
  // Element i of stage 3 is close to the element of stage 4 that it splits into, if not the same.
  const Near last = near_of(machines, mapped, 3);
  EXPECT_EQ(last.same_rack, last.all);
  EXPECT_GE(last.same_member * 2, last.all);
  EXPECT_LT(near_of(machines, spread, 3).same_rack * 2, last.all);
  for (std::uint32_t index = 0; index < 16; ++index) {
    std::vector<std::uint32_t> owners;
    for (std::uint32_t part = 0; part < 4; ++part) owners.push_back(mapped.owner(mapped.next({3, index}, part)));
    const auto [low, high] =
        std::ranges::minmax(owners, {}, [&](std::uint32_t owner) { return machines.place(owner).rack; });
    EXPECT_EQ(machines.place(low).rack, machines.place(high).rack) << index;
  }
}

TEST(Geometry, MappedStagesShareTheWork) {
  for (const auto& [racks, of_rack] : {std::pair{1U, 1U}, {2U, 3U}, {5U, 2U}})
    for (const char* options :
         {"stages=2&fanout=16&stage2=rack:*", "stages=1&fanout=128&stage2=dpus", "stages=4&fanout=4&stage1=hosts",
          "stages=3&fanout=8&stage1=hosts&stage2=rack:*/dpus&stage4=dpus"}) {
      const Machines machines(racks, of_rack);
      const Geometry geometry = machines.geometry(options);
      const auto count = static_cast<std::uint32_t>(machines.names.size());
      const std::uint32_t last = geometry.settings().track_stage();
      std::map<std::uint32_t, std::uint32_t> tracks;
      for (std::uint32_t index = 0; index < geometry.settings().elements(last); ++index)
        ++tracks[geometry.owner({last, index})];
      const auto [least, most] = std::minmax_element(
          tracks.begin(), tracks.end(), [](const auto& one, const auto& other) { return one.second < other.second; });
      EXPECT_LE(most->second, least->second + 1) << options;
      // The expected senders are exactly the actual ones, so a flush ends.
      for (std::uint32_t stage = 1; stage < last; ++stage)
        for (std::uint32_t source = 0; source < count; ++source)
          for (const std::uint32_t index : geometry.elements_of(source, stage))
            for (std::uint32_t part = 0; part < geometry.settings().fanout; ++part) {
              const ElementId next = geometry.next({stage, index}, part);
              const std::uint32_t to = geometry.owner(next, source);
              ASSERT_TRUE(geometry.holds(to, next));
              const bool sends = stage == 1 || !geometry.sources({stage, index}, source).empty();
              ASSERT_EQ(std::ranges::count(geometry.sources(next, to), source), sends ? 1 : 0) << options;
            }
      for (std::uint32_t index = 0; index < geometry.settings().elements(last); ++index)
        ASSERT_FALSE(geometry.sources({last, index}, geometry.owner({last, index})).empty()) << "a flush would not end";
    }
}

// With as many senders as holders of an element, each holder gets a part.
TEST(Geometry, EverySelectedMemberGetsRowsIfThereAreEnoughSenders) {
  for (const char* options :
       {"stages=2&fanout=2&stage1=rack:r0&stage2=rack:r1", "stages=2&fanout=4&stage1=hosts&stage2=dpus",
        "stages=2&fanout=2&stage1=rack:r1&stage2=dpus", "stages=3&fanout=2&stage2=hosts&stage3=dpus",
        "stages=2&fanout=2&stage1=host*&stage2=dpu*,host16"}) {
    const Machines machines(2, 16);
    const Geometry geometry = machines.geometry(options);
    for (std::uint32_t stage = 2; stage < geometry.settings().track_stage(); ++stage)
      for (std::uint32_t member = 0; member < machines.names.size(); ++member)
        for (const std::uint32_t index : geometry.elements_of(member, stage)) {
          EXPECT_FALSE(geometry.sources({stage, index}, member).empty())
              << options << ": " << machines.names[member] << ", element " << index << " of stage " << stage;
        }
  }
}

// With as many members, racks and places as fit into a name: made on the loop.
TEST(Geometry, WhatIsMadeOnTheLoopIsBounded) {
  Settings settings = parse_settings("sift:/t?key=id&stages=3&fanout=32&stage2=rack:*&stage3=rack:*").value();
  std::vector<std::string> names;
  for (std::uint32_t i = 0; i < 1024; ++i) {
    names.push_back(fmt::format("m{:04}", i));
    settings.places[names.back()].rack = fmt::format("r{}", i / 4);
  }
  const auto made = Geometry::make(settings, names);  // 1,024 elements in 256 racks, each of 256 senders
  EXPECT_TRUE(made) << made.error().message;
  for (std::uint32_t i = 0; i < 1024; ++i) settings.places[names[i]].rack = fmt::format("r{}", i);
  const auto refused = Geometry::make(settings, names);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Error::too_large) << refused.error().message;
  settings.selectors = {{2, "rack:*"}, {3, "rack:*"}, {4, "rack:r[01]"}};
  settings.fanout = 16;
  settings.stages = 4;
  const auto wide = Geometry::make(settings, names);
  ASSERT_FALSE(wide);
  EXPECT_NE(wide.error().message.find("1024 members send to each of 4096 elements"), std::string::npos)
      << wide.error().message;
}

TEST(Geometry, AStageHasMembersAndTracksAreInOnePlace) {
  const Machines machines(2, 2);
  const auto refusal = [&](std::string_view options) {
    const auto made = Geometry::make(machines.settings(options), machines.names);
    return made ? std::string() : made.error().message;
  };
  EXPECT_NE(refusal("stage2=rack:r7").find("it has no such member"), std::string::npos);
  EXPECT_NE(refusal("stage2=rack:*").find("keeps the tracks"), std::string::npos);
  EXPECT_EQ(refusal("stage2=rack:r1"), "");
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
