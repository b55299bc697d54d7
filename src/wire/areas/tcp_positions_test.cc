#include "wire/areas/tcp_positions.h"

#include <gtest/gtest.h>

namespace offpath::wire {
namespace {

constexpr std::uint32_t ring_bytes = 1024;

TEST(TcpPositions, NoMoreIsOfferedThanTheRingKeeps) {
  TcpPositionsOut out{.offered = 5000, .acknowledged = 4500};
  EXPECT_EQ(out.unacknowledged(), 500u);
  EXPECT_TRUE(out.may_offer(4500 + ring_bytes, ring_bytes));
  EXPECT_FALSE(out.may_offer(4501 + ring_bytes, ring_bytes));
  EXPECT_TRUE(out.may_offer(0, ring_bytes));  // a late value
  out.acknowledged = 5000;
  EXPECT_EQ(out.unacknowledged(), 0u);
  EXPECT_TRUE(out.may_offer(5000 + ring_bytes, ring_bytes));
}

TEST(TcpPositions, NoMoreIsAllowedThanTheRingHasRoomFor) {
  TcpPositionsIn in{.received = 100, .allowed = ring_bytes};
  EXPECT_EQ(in.room(), ring_bytes - 100u);
  EXPECT_TRUE(in.may_allow(100 + ring_bytes, ring_bytes));
  EXPECT_FALSE(in.may_allow(101 + ring_bytes, ring_bytes));
}

TEST(TcpPositions, AWindowThatWasShutHasNoRoom) {
  EXPECT_EQ((TcpPositionsIn{.received = 100, .allowed = 100}.room()), 0u);
  EXPECT_EQ((TcpPositionsIn{.received = 101, .allowed = 100}.room()), 0u);
}

}  // namespace
}  // namespace offpath::wire
