#include "base/ring_bytes.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace offpath {
namespace {

TEST(RingBytes, PiecesOfEveryPlaceAndLengthLieInOrder) {
  std::array<std::byte, 8> ring;
  for (std::uint64_t position = UINT64_MAX - 11; position != 12; ++position) {  // the count wraps, too
    for (std::size_t length = 0; length <= ring.size(); ++length) {
      const auto [first, second] = ring_pieces(MutableBytes(ring), position, length);
      ASSERT_EQ(first.size() + second.size(), length);
      for (std::size_t i = 0; i < length; ++i) {
        const std::byte* const piece = i < first.size() ? &first[i] : &second[i - first.size()];
        ASSERT_EQ(piece, &ring[(position + i) % ring.size()]) << "position " << position << ", byte " << i;
      }
    }
  }
}

TEST(RingBytes, RunsCountSlotsAsWell) {
  const auto expect_runs = [](RingRuns runs, std::uint64_t at, std::uint64_t first, std::uint64_t second) {
    EXPECT_EQ(runs.at, at);
    EXPECT_EQ(runs.first, first);
    EXPECT_EQ(runs.second, second);
  };
  expect_runs(ring_runs(8, 5, 3), 5, 3, 0);  // it ends with the ring
  expect_runs(ring_runs(8, 5, 4), 5, 3, 1);
  expect_runs(ring_runs(8, UINT64_MAX, 8), 7, 1, 7);
  expect_runs(ring_runs(8, 16, 0), 0, 0, 0);
}

TEST(RingBytes, ACopyInComesOutAndTouchesNothingElse) {
  for (std::uint64_t position = 0; position < 8; ++position) {
    for (std::size_t length = 0; length <= 8; ++length) {
      std::array<std::byte, 8> ring{};
      std::vector<std::byte> in, out(length);
      for (std::size_t i = 0; i < length; ++i) in.push_back(static_cast<std::byte>(i + 1));
      copy_into_ring(ring, position, in);
      for (std::size_t i = length; i < ring.size(); ++i) ASSERT_EQ(ring[(position + i) % 8], std::byte{0});
      copy_out_of_ring(ring, position, out);
      ASSERT_EQ(in, out) << "position " << position;
    }
  }
}

}  // namespace
}  // namespace offpath
