#include "pool/table/gone_ranks.h"

#include <gtest/gtest.h>

#include "base/clock.h"

namespace offpath::pool {
namespace {

TEST(GoneRanks, AreNamedWithTheirProgramsAndTimes) {
  GoneRanks gone;
  gone.add("local:/p", 2, {"solver", "node7", 4711, 86400 * second_ns});
  gone.add("local:/p", 3, {"solver", "", 4712, 0});
  gone.add("local:/q", 1, {"other", "", 1, 0});
  EXPECT_EQ(gone.describe("local:/p", {0}, 4),
            "rank 2 (solver, process 4711 on node7) ended at 1970-01-02 00:00:00 UTC, rank 3 (solver, process 4712) "
            "ended");
  EXPECT_EQ(gone.describe("local:/p", {0, 3}, 3),
            "rank 2 (solver, process 4711 on node7) ended at 1970-01-02 00:00:00 UTC");
  EXPECT_EQ(gone.describe("local:/p", {0, 1}, 2), "") << "of a step of two ranks";
  gone.remove("local:/p", 2);
  EXPECT_EQ(gone.describe("local:/p", {0, 3}, 4), "") << "it is back";
}

TEST(GoneRanks, ArePickedForAPersonToRead) {
  GoneRanks gone;
  for (std::uint32_t rank = 0; rank < 2 * GoneRanks::kept_max; ++rank) gone.add("p", rank, {"a", "", 1, 0});
  EXPECT_EQ(gone.find("p", 0), nullptr) << "the oldest are forgotten";
  const std::string text = gone.describe("p", {}, 2 * GoneRanks::kept_max);
  EXPECT_TRUE(text.ends_with(" and 1020 more")) << text;
}

TEST(MissingRanks, AreTheLowestThatHaveNotEnded) {
  EXPECT_EQ(missing_ranks({0, 2}, 5, 8), (std::vector<std::uint32_t>{1, 3, 4}));
  EXPECT_EQ(missing_ranks({0, 2}, 4'000'000'000, 2), (std::vector<std::uint32_t>{1, 3}));
}

}  // namespace
}  // namespace offpath::pool
