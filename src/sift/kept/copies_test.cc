#include "sift/kept/copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "group/core_name.h"
#include "pool/directory/placement.h"
#include "sift/kept/journal.h"
#include "testing/cpu_time.h"

namespace offpath::sift {
namespace {

std::vector<std::string> names(std::size_t count) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(fmt::format("dpu{:03}", i));
  return all;
}

std::uint64_t bytes_of(const std::string& settings, std::size_t members, std::uint32_t member = 0) {
  const Geometry geometry =
      Geometry::make(parse_settings("sift:/t?key=id&" + settings).value(), names(members)).value();
  return copies_bytes(geometry, member);
}

TEST(SiftCopies, RowsLieAtTheirMemberFirstAndAreSpreadEvenly) {
  for (const std::size_t members : {2, 3, 7, 16}) {
    const std::vector<std::string> all = names(members);
    std::set<std::string> second;
    for (const std::string& self : all) {
      const auto owners = pool::owners_of(pool::Policy::hash, 2, kept_row(self, 2, all), all);
      EXPECT_EQ(owners[0], self);
      second.insert(owners[1]);
    }
    EXPECT_EQ(second.size(), members) << "each has the copies of one";
  }
}

// On the event loop, for each of up to 16 members. The member after one of several cores is a core of the same agent,
// which never has a copy of its row.
TEST(SiftCopies, RowsOfCoresAreFoundAsFastAsThoseOfAgents) {
  std::vector<std::string> cores;
  for (const char* const agent : {"dpu0", "dpu1"})
    for (unsigned core = 0; core < 8; ++core) cores.push_back(group::core_name(agent, core));
  std::ranges::sort(cores);
  for (const std::string& self : cores) {
    const auto owners = pool::owners_of(pool::Policy::hash, 2, kept_row(self, 2, cores), cores);
    ASSERT_EQ(owners.size(), 2u);
    EXPECT_EQ(owners[0], self);
    EXPECT_NE(group::agent_of(owners[1]), group::agent_of(self));
  }
  const auto cpu_ns = [](const std::vector<std::string>& members) {
    return least_cpu_ns([&] {
      for (const std::string& self : members) (void)kept_row(self, 2, members);
    });
  };
  EXPECT_LT(cpu_ns(cores), 10 * cpu_ns(names(cores.size())));
}

TEST(SiftCopies, ThereIsABudgetForEachStageOfEachRow) {
  constexpr std::uint64_t budget = 1 << 20;
  for (const std::uint32_t stages : {1, 2, 3}) {
    const std::string settings = fmt::format("budget=1MiB&threshold=64KiB&fanout=4&stages={}", stages);
    EXPECT_EQ(bytes_of(settings, 3), 0u) << "no copies";
    EXPECT_EQ(bytes_of(settings + "&replicas=2", 1), 0u) << "nobody to have them";
    const std::uint64_t one = bytes_of(settings + "&replicas=2", 3);
    EXPECT_GE(one, (stages + 1) * budget);
    EXPECT_LT(one, (stages + 2) * budget);
    EXPECT_EQ(bytes_of(settings + "&replicas=3", 3), 2 * one) << "all have those of all";
    EXPECT_LT(bytes_of(settings + "&replicas=2&spill=durable", 3), 2 * budget) << "they leave memory for the disk";
  }
}

TEST(SiftCopies, OfManyMembersItIsOneRowMoreThanTheMean) {
  const std::string settings = "budget=1MiB&threshold=64KiB&replicas=2";
  EXPECT_GE(bytes_of(settings, 100, 7), 2 * 2 * (1ull << 20));
  EXPECT_EQ(bytes_of(settings, 100, 7), bytes_of(settings, 100, 42));
}

TEST(SiftCopies, RunsOfTracksStayAndNothingElse) {
  EXPECT_TRUE(copy_stays(KeptName{KeptName::Kind::run, {2, 1}, {}, 3}.text()));
  EXPECT_FALSE(copy_stays(KeptName{KeptName::Kind::split, {1, 0}, {}, 3}.text()));
  EXPECT_FALSE(copy_stays(KeptName{KeptName::Kind::piece, {2, 1}, {0, 1, 9}, 0}.text()));
  EXPECT_FALSE(copy_stays("pool"));
}

}  // namespace
}  // namespace offpath::sift
