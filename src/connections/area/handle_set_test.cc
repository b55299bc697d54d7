#include "connections/area/handle_set.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace offpath::channel {
namespace {

using Handle = HandleSet::Handle;

std::vector<Handle> all_of(HandleSet& set) {
  std::vector<Handle> all;
  for (auto next = set.next(0); next; next = set.next(*next + 1)) all.push_back(*next);
  return all;
}

TEST(HandleSet, IsASet) {
  for (const std::uint32_t flows : {1u, 64u, 65u, 4097u, 300'000u, wire::tcp_flows_max}) {
    std::vector<std::byte> memory(HandleSet::bytes(flows));
    HandleSet set(memory.data(), flows);
    std::set<Handle> model;
    std::mt19937 random(flows);
    EXPECT_TRUE(set.empty());
    for (int i = 0; i < 2000; ++i) {
      const Handle handle = i == 0 ? flows - 1 : random() % flows, from = random() % (flows + 1);
      if (random() % 3 != 0)
        set.add(handle), model.insert(handle);
      else
        set.remove(handle), model.erase(handle);
      ASSERT_EQ(set.has(handle), model.contains(handle));
      const auto next = model.lower_bound(from);
      ASSERT_EQ(set.next(from), next == model.end() ? std::nullopt : std::optional(*next)) << from << " of " << flows;
    }
    EXPECT_EQ(all_of(set), std::vector<Handle>(model.begin(), model.end()));
    for (const Handle handle : model) set.remove(handle);
    EXPECT_TRUE(set.empty());
  }
}

// A process that dies while it adds one has set upper bits alone.
TEST(HandleSet, SurvivesTheDeathOfAProcess) {
  constexpr std::uint32_t flows = 100'000;
  std::vector<std::byte> memory(HandleSet::bytes(flows)), whole = memory;
  HandleSet set(memory.data(), flows), other(whole.data(), flows);
  other.add(5000);
  // The lowest level comes first: the part that is not copied was not written.
  const std::size_t lowest = (flows + 63) / 64 * sizeof(std::uint64_t);
  std::copy(whole.begin() + lowest, whole.end(), memory.begin() + lowest);
  EXPECT_EQ(set.next(0), std::nullopt);
  set.add(90'000);
  EXPECT_EQ(all_of(set), std::vector<Handle>{90'000});
  set.add(5000);
  EXPECT_EQ(all_of(set), (std::vector<Handle>{5000, 90'000}));
}

TEST(HandlePass, MeetsEachMemberOnceFromWhereTheLastOneStopped) {
  std::vector<std::byte> memory(HandleSet::bytes(1000));
  HandleSet set(memory.data(), 1000);
  for (const Handle each : {3u, 70u, 500u, 999u}) set.add(each);
  Handle from = 0;
  {
    HandlePass pass(set, from);
    EXPECT_EQ(pass.next(), 3u);
    EXPECT_EQ(pass.next(), 70u);
  }
  HandlePass pass(set, from);
  std::vector<Handle> met;
  while (const auto next = pass.next()) {
    met.push_back(*next);
    set.remove(*next);
  }
  EXPECT_EQ(met, (std::vector<Handle>{500, 999, 3, 70}));
  EXPECT_FALSE(HandlePass(set, from).next());
}

}  // namespace
}  // namespace offpath::channel
