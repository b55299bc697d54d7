#include "channel/host/leases.h"

#include <gtest/gtest.h>

#include <array>

namespace offpath::channel {
namespace {

struct Progress {
  std::array<std::uint64_t, 4> pulled{};
  std::uint64_t operator()(std::uint32_t stream) const { return pulled.at(stream); }
};

TEST(Leases, EndWhenEveryStreamHasPulled) {
  Leases leases;
  Progress progress;
  EXPECT_EQ(leases.pending(progress).ticket, 0u);
  leases.add(1, 10);
  leases.add(2, 11);
  leases.add(3, 12);
  leases.add(2, 15);
  leases.add(1, 14);
  progress.pulled = {0, 14, 14, 12};
  EXPECT_EQ(leases.pending(progress).stream, 2u);
  EXPECT_EQ(leases.pending(progress).ticket, 15u);
  progress.pulled[2] = 15;
  EXPECT_EQ(leases.pending(progress).ticket, 0u);
}

TEST(Leases, OfAClosedStreamAreForgottenAndNoOthers) {
  for (const std::uint32_t closed : {1U, 2U, 3U}) {
    Leases leases;
    for (const std::uint32_t stream : {1U, 2U, 3U}) leases.add(stream, 10 * stream);
    leases.forget(closed);
    Progress progress;
    std::uint32_t left = 0;
    while (const std::uint64_t ticket = leases.pending(progress).ticket) {
      const std::uint32_t stream = leases.pending(progress).stream;
      EXPECT_EQ(ticket, 10 * stream);
      EXPECT_NE(stream, closed);
      progress.pulled[stream] = ticket;
      ++left;
    }
    EXPECT_EQ(left, 2u);
    // A new stream has its number.
    leases.add(closed, 1);
    EXPECT_EQ(leases.pending(progress).stream, closed);
  }
}

TEST(Leases, AreNoneAfterClear) {
  Leases leases;
  leases.add(1, 1);
  leases.add(2, 2);
  leases.clear();
  EXPECT_EQ(leases.pending(Progress{}).ticket, 0u);
}

}  // namespace
}  // namespace offpath::channel
