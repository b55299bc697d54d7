// Atoms that leave their rank's part of the box.
#include "md/ranks/migrate.h"

#include <gtest/gtest.h>

#include "md/files/temporary_file.h"
#include "md/ranks/thread_ranks.h"

namespace md {
namespace {

// On four ranks in a row, an atom of the first goes two parts farther.
void send_far(Ranks& ranks, bool safe) {
  Box box;
  box.high = {40, 1, 1};
  Domain domain = make_domain(box, ranks.count(), ranks.rank());
  domain.safe_exchange = safe;
  Atoms atoms;
  const std::array<double, 3> x{25, 0.5, 0.5}, v{1, 2, 3};
  if (ranks.rank() == 0) atoms.add(7, 0, x.data(), v.data());
  migrate(domain, ranks, atoms);
  EXPECT_EQ(atoms.own, ranks.rank() == 2 ? 1U : 0U);
  if (atoms.own == 1) {
    EXPECT_EQ(atoms.v[1], 2);
  }
}

TEST(Migrate, FartherThanTheNextRankOnlyIfAskedFor) {
  ThreadRanks::run(4, [](Ranks& ranks) { send_far(ranks, true); });
  EXPECT_NE(refusal_of([] {
              ThreadRanks::run(4, [](Ranks& ranks) { send_far(ranks, false); });
            }).find("1 atoms went further than the neighbouring rank's part"),
            std::string::npos);
}

TEST(Domain, EveryPositionIsOfTheRankThatHasIt) {
  Box box;
  box.low = {-1, 0, 2};
  box.high = {7, 5, 6.3};
  for (const int ranks : {1, 3, 8, 12}) {
    const RankOfPosition rank_of(box, ranks);
    for (int n = 0; n < 1000; ++n) {
      std::array<double, 3> x{};
      for (std::size_t d = 0; d < 3; ++d) {
        const double share = n % 7 * (d + 1) % 13 / 12.0 + n / 1000.0;
        x[d] = box.wrapped(d, box.low[d] + share * box.length(static_cast<int>(d)));
      }
      const Box own = make_domain(box, ranks, rank_of(x)).own;
      for (std::size_t d = 0; d < 3; ++d) EXPECT_TRUE(x[d] >= own.low[d] && x[d] < own.high[d]) << ranks << " " << n;
    }
  }
}

}  // namespace
}  // namespace md
