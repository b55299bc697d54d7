#include "exchange/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace offpath::exchange {
namespace {

using testing::HasSubstr;

std::vector<Place> places(std::size_t count, std::size_t per_host = 0, std::size_t per_rack = 0) {
  std::vector<Place> all;
  for (std::size_t i = 0; i < count; ++i) {
    Place place{fmt::format("dpu{}", i)};
    // Dealt out in turns, so that neighbours by number are not neighbours by location.
    if (per_host != 0) place.host = fmt::format("host{}", i % ((count + per_host - 1) / per_host));
    if (per_rack != 0) place.rack = fmt::format("rack{}", i % ((count + per_rack - 1) / per_rack));
    all.push_back(place);
  }
  return all;
}

Shape shape(std::string_view text, Shape::Order order = Shape::Order::contiguous) {
  auto parsed = parse_shape(text);
  EXPECT_TRUE(parsed) << parsed.error().message;
  parsed->order = order;
  return *parsed;
}

// Checks that every member occurs once, that every node is a run of its children's runs, and that levels grow towards
// the root.
void check_tree(const Topology& tree, std::size_t members) {
  ASSERT_EQ(tree.size(), members);
  std::vector<MemberIndex> sorted = tree.order();
  std::ranges::sort(sorted);
  for (MemberIndex i = 0; i < members; ++i) ASSERT_EQ(sorted[i], i);
  for (NodeIndex index = 0; index < tree.nodes().size(); ++index) {
    const Node& node = tree.node(index);
    if (index == tree.root())
      EXPECT_EQ(node.parent, nobody);
    else
      EXPECT_NE(node.parent, nobody);
    if (node.member != nobody) {
      EXPECT_EQ(node.last - node.first, 1u);
      EXPECT_EQ(tree.order()[node.first], node.member);
      continue;
    }
    std::uint32_t at = node.first;
    for (const NodeIndex child : node.children) {
      EXPECT_EQ(tree.node(child).parent, index);
      EXPECT_EQ(tree.node(child).first, at);
      EXPECT_LT(tree.node(child).level, node.level);
      at = tree.node(child).last;
    }
    EXPECT_EQ(at, node.last);
  }
}

TEST(Topology, EveryShapeOfEveryNumberOfMembersIsAWholeTree) {
  for (const std::size_t count : {1, 2, 3, 5, 7, 9, 16, 31, 97, 125, 127, 1600})
    for (const char* text :
         {"allgather", "neighbourhoods(2)", "neighbourhoods(5)", "grouped_allgather(2)", "grouped_allgather(3)",
          "grouped_allgather(40)", "hybrid(2, 1)", "hybrid(2, 3)", "hybrid(5, 3)", "hybrid(2, 32)"})
      for (const auto order : {Shape::Order::contiguous, Shape::Order::locality}) {
        SCOPED_TRACE(fmt::format("{} members, {}", count, text));
        const auto tree = Topology::make(shape(text, order), places(count, 4, 16));
        ASSERT_TRUE(tree) << tree.error().message;
        check_tree(*tree, count);
      }
}

TEST(Topology, AllgatherIsOneGroupAndGroupedAllgatherHasGroupsOfASize) {
  const auto flat = Topology::make(shape("allgather"), places(9));
  EXPECT_EQ(flat->node(flat->root()).children.size(), 9u);
  EXPECT_EQ(flat->node(flat->root()).level, 1u);
  const auto pairs = Topology::make(shape("grouped_allgather(2)"), places(9));
  EXPECT_EQ(pairs->node(pairs->root()).children.size(), 5u);  // four pairs and one alone
  EXPECT_EQ(pairs->node(pairs->root()).level, 2u);
}

TEST(Topology, NeighbourhoodsGatherUpToOneLeader) {
  for (const std::size_t size : {2, 3, 7})
    for (const std::size_t count : {2, 3, 4, 9, 16, 100, 1000})
      for (const auto order : {Shape::Order::contiguous, Shape::Order::locality}) {
        SCOPED_TRACE(fmt::format("{} members, {} in a group", count, size));
        const auto tree = Topology::make(shape(fmt::format("neighbourhoods({})", size), order), places(count, 4, 16));
        ASSERT_TRUE(tree);
        EXPECT_FALSE(tree->sends_across());
        ASSERT_EQ(tree->node(tree->root()).children.size(), 1u);
        const Node& top = tree->node(tree->node(tree->root()).children.front());
        EXPECT_EQ(top.last - top.first, count);
        for (const Node& node : tree->nodes()) EXPECT_LE(node.children.size(), size);
        std::uint32_t levels = 0;
        for (std::size_t left = count; left > 1; left = (left + size - 1) / size) ++levels;
        if (order == Shape::Order::contiguous) {
          EXPECT_EQ(top.level, levels);
        }
      }
  const auto three = Topology::make(shape("neighbourhoods(2)"), places(3));
  EXPECT_THAT(three->text(places(3)), HasSubstr("3 members, led by dpu0, which gathers from all and scatters to all"));
  EXPECT_NE(three->fingerprint(), Topology::make(shape("hybrid(2, 32)"), places(3))->fingerprint());
}

TEST(Topology, HybridIsAsDeepAsItIsToldAndNoDeeper) {
  const auto tree = Topology::make(shape("hybrid(2, 3)"), places(16));
  EXPECT_EQ(tree->node(tree->root()).level, 3u);
  EXPECT_EQ(tree->node(tree->root()).children.size(), 4u);  // 16 -> 8 -> 4, which send to each other
  const auto deep = Topology::make(shape("hybrid(2, 32)"), places(16));
  EXPECT_EQ(deep->node(deep->root()).level, 4u);
  EXPECT_EQ(deep->node(deep->root()).children.size(), 2u);
}

TEST(Topology, GroupsOfOneLevelDifferByOneAtMost) {
  for (const std::size_t count : {9, 97, 125, 1600}) {
    const auto tree = Topology::make(shape("grouped_allgather(7)"), places(count));
    std::size_t least = count, most = 0;
    for (const NodeIndex child : tree->node(tree->root()).children) {
      const std::size_t size = tree->node(child).last - tree->node(child).first;
      least = std::min(least, size);
      most = std::max(most, size);
    }
    EXPECT_LE(most, 7u);
    EXPECT_LE(most - least, 1u) << count;
  }
}

TEST(Topology, ByLocalityNoGroupHasTwoHosts) {
  const auto members = places(24, 4, 12);
  const auto tree = Topology::make(shape("hybrid(3, 3)", Shape::Order::locality), members);
  for (const NodeIndex top : tree->node(tree->root()).children) {
    std::set<std::string> racks;
    for (std::uint32_t i = tree->node(top).first; i < tree->node(top).last; ++i)
      racks.insert(members[tree->order()[i]].rack);
    EXPECT_EQ(racks.size(), 1u);
    for (const NodeIndex group : tree->node(top).children) {
      std::set<std::string> hosts;
      for (std::uint32_t i = tree->node(group).first; i < tree->node(group).last; ++i)
        hosts.insert(members[tree->order()[i]].host);
      EXPECT_EQ(hosts.size(), 1u);
    }
  }
  // One member on each host: then racks count.
  const auto alone = places(12, 1, 4);
  const auto racked = Topology::make(shape("grouped_allgather(4)", Shape::Order::locality), alone);
  ASSERT_EQ(racked->node(racked->root()).children.size(), 3u);
  for (const NodeIndex group : racked->node(racked->root()).children) {
    std::set<std::string> racks;
    for (std::uint32_t i = racked->node(group).first; i < racked->node(group).last; ++i)
      racks.insert(alone[racked->order()[i]].rack);
    EXPECT_EQ(racks.size(), 1u);
  }
}

TEST(Topology, ADeadLeaderIsReplacedByTheNextOfItsRun) {
  const auto tree = Topology::make(shape("grouped_allgather(3)"), places(9));
  const NodeIndex group = tree->node(tree->root()).children[1];
  EXPECT_EQ(tree->leader(group, [](MemberIndex) { return true; }), 3u);
  EXPECT_EQ(tree->leader(group, [](MemberIndex m) { return m != 3; }), 4u);
  EXPECT_EQ(tree->leader(group, [](MemberIndex) { return false; }), nobody);
}

TEST(Topology, TheFingerprintTellsTreesApart) {
  const auto of = [](std::string_view text, std::size_t count) {
    return Topology::make(shape(text), places(count))->fingerprint();
  };
  EXPECT_EQ(of("grouped_allgather(2)", 9), of("grouped_allgather(2)", 9));
  EXPECT_NE(of("grouped_allgather(2)", 9), of("grouped_allgather(3)", 9));
  EXPECT_NE(of("allgather", 9), of("allgather", 8));
  EXPECT_EQ(of("allgather", 2), 0x9A7E'AD14'24AE'CD1Au) << "agents of other versions compute it, too";
}

Result<Topology> of_file(std::string text, std::size_t count) {
  Shape file;
  file.kind = Shape::Kind::file;
  file.tree = std::move(text);
  return Topology::make(file, places(count));
}

TEST(TreeFile, NamedGroupsBecomeTheTree) {
  const auto tree = of_file("# two racks\nrack0: dpu0 dpu2\nrow: rack0 rack1  # all\n\nrack1: dpu4 dpu1 dpu3\n", 5);
  ASSERT_TRUE(tree) << tree.error().message;
  check_tree(*tree, 5);
  EXPECT_EQ(tree->order(), (std::vector<MemberIndex>{0, 2, 4, 1, 3}));
  EXPECT_EQ(tree->node(tree->root()).name, "row");
  const std::string picture = tree->text(places(5));
  EXPECT_THAT(picture, HasSubstr("row: 5 members, led by dpu0"));
  EXPECT_THAT(picture, HasSubstr("rack1: 3 members, led by dpu4"));
  EXPECT_THAT(picture, HasSubstr("dpu4  dpu1  dpu3"));
}

TEST(TreeFile, GroupsThatAreNobodysPartMeetAtTheRoot) {
  const auto tree = of_file("a: dpu0 dpu1\nb: dpu2\n", 3);
  ASSERT_TRUE(tree) << tree.error().message;
  check_tree(*tree, 3);
  EXPECT_EQ(tree->node(tree->root()).children.size(), 2u);
}

TEST(TreeFile, WhatIsWrongIsNamedWithLineAndMember) {
  const auto error = [](std::string text, std::size_t count = 3) {
    const auto tree = of_file(std::move(text), count);
    EXPECT_FALSE(tree);
    return tree ? std::string() : tree.error().message;
  };
  EXPECT_THAT(error("a: dpu0 dpu1\nb: dpu2 dpu9\n"), HasSubstr("line 2: dpu9 is neither a member nor a group"));
  EXPECT_THAT(error("a: dpu0 dpu1\nb: dpu2 dpu0\n"), HasSubstr("line 2: member dpu0 is already in a (line 1)"));
  EXPECT_THAT(error("a: dpu0 dpu1 dpu0\nb: dpu2\n"), HasSubstr("line 1: member dpu0 is already in a"));
  EXPECT_THAT(error("a: dpu0 b\nb: dpu1 c\nc: dpu2 a\n"),
              HasSubstr("line 1: group a is part of itself: a in c in b in a"));
  EXPECT_THAT(error("a: a dpu0 dpu1 dpu2\n"), HasSubstr("group a is part of itself"));
  EXPECT_THAT(error("a: dpu0 dpu1\n"), HasSubstr("does not contain member dpu2"));
  EXPECT_THAT(error("a: dpu0 dpu1 dpu2\na: dpu1\n"), HasSubstr("line 2: group a exists already (line 1)"));
  EXPECT_THAT(error("a: dpu0 dpu1 dpu2\nb: a\nc: a\n"), HasSubstr("line 3: group a is already in b (line 2)"));
  EXPECT_THAT(error("dpu0: dpu1 dpu2\n"), HasSubstr("line 1: dpu0 is a member, not a group"));
  EXPECT_THAT(error("dpu0 dpu1\n"), HasSubstr("line 1: a group is written"));
  EXPECT_THAT(error("a b: dpu1\n"), HasSubstr("line 1: one name"));
  EXPECT_THAT(error("a:\n"), HasSubstr("line 1: group a has no parts"));
  EXPECT_THAT(error("# nothing\n"), HasSubstr("without a group"));
}

TEST(Shapes, FormsAreReadAndWritten) {
  for (const char* text : {"allgather", "neighbourhoods(4)", "grouped_allgather(4)", "hybrid(2, 3)"})
    EXPECT_EQ(shape_text(shape(text)), text);
  for (const char* text : {"", "ring", "neighbourhoods", "grouped_allgather(1)", "grouped_allgather(4", "hybrid(2)",
                           "hybrid(2, 0)", "hybrid(2, 33)", "grouped_allgather(-2)", "grouped_allgather(99999999999)"})
    EXPECT_FALSE(parse_shape(text)) << text;
}

TEST(Topology, MembersHaveNamesOfTheirOwn) {
  EXPECT_THAT(Topology::make({}, std::vector<Place>{{"a"}, {"b"}, {"a"}}).error().message,
              HasSubstr("member a is named twice"));
  EXPECT_FALSE(Topology::make({}, std::vector<Place>{}));
  EXPECT_FALSE(Topology::make({}, std::vector<Place>{{""}}));
}

}  // namespace
}  // namespace offpath::exchange
