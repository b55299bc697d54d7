// Atoms that leave their rank's part of the box.
#include "md/ranks/migrate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "md/files/temporary_file.h"
#include "md/ranks/pieces.h"
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

// Not where it is on already.
TEST(Migrate, SafeExchangeIsAdvisedWhereItIsOff) {
  for (const bool safe : {true, false}) {
    const std::string refusal = refusal_of([&] {
      ThreadRanks::run(4, [&](Ranks& ranks) {
        Box box;
        box.high = {40, 1, 1};
        Domain domain = make_domain(box, ranks.count(), ranks.rank());
        domain.safe_exchange = safe;
        Atoms atoms;
        const std::array<double, 3> x{-50, 0.5, 0.5}, v{0, 0, 0};  // two boxes away: no rank has it
        if (ranks.rank() == 0) atoms.add(7, 0, x.data(), v.data());
        migrate(domain, ranks, atoms);
      });
    });
    EXPECT_NE(refusal.find("1 atoms went further"), std::string::npos);
    EXPECT_EQ(refusal.find("--safe_exchange") == std::string::npos, safe);
  }
}

TEST(Pieces, OfBothSidesMakeTheWhole) {
  for (const std::size_t size : {0U, 1U, 6U, 7U, 8U, 14U, 15U}) {
    std::vector<std::byte> sent(size), received(size);
    for (std::size_t k = 0; k < size; ++k) sent[k] = static_cast<std::byte>(k + 1);
    std::deque<std::vector<std::byte>> under_way;
    in_pieces(std::span<const std::byte>(sent), 7, [&](std::span<const std::byte> piece) {
      EXPECT_LE(piece.size(), 7U);
      under_way.emplace_back(piece.begin(), piece.end());
    });
    in_pieces(std::span(received), 7, [&](std::span<std::byte> piece) {
      ASSERT_EQ(piece.size(), under_way.front().size());
      std::copy(under_way.front().begin(), under_way.front().end(), piece.begin());
      under_way.pop_front();
    });
    EXPECT_TRUE(under_way.empty()) << size;
    EXPECT_EQ(received, sent);
  }
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
