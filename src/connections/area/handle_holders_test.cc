#include "connections/area/handle_holders.h"

#include <gtest/gtest.h>

#include "testing/sockets/area_parts.h"

namespace offpath::channel {
namespace {

constexpr SocketOptions held_flows{.flows = 64, .send_bytes = 4096, .receive_bytes = 4096};

class HandleHoldersTest : public testing::Test {
 protected:
  AreaParts parts{held_flows};
  std::uint32_t one = parts.processes.add().value(), two = parts.processes.add().value();
  std::uint32_t flow = parts.flow();
  SocketCell& cell = parts.records.cell(flow);
};

TEST_F(HandleHoldersTest, TheLastOneIsFoundWhenOthersRelease) {
  parts.holders.hold(one, flow);
  parts.holders.hold(two, flow);
  EXPECT_EQ(parts.holders.begin_release(two, flow), 2u);
  parts.holders.end_release(two, flow);
  EXPECT_EQ(parts.holders.begin_release(0, flow), 1u);
  EXPECT_EQ(cell.holder, one);
  parts.holders.end_release(0, flow);
  EXPECT_TRUE(parts.holders.is_held(one, flow));
  EXPECT_EQ(parts.holders.begin_release(one, flow), 0u);
}

TEST_F(HandleHoldersTest, AllAreToldOfAChange) {
  parts.holders.hold(two, flow);
  parts.holders.mark_changed(flow, 0);
  EXPECT_EQ(parts.processes.take_changed(0), flow);
  EXPECT_EQ(parts.processes.take_changed(two), flow);
  EXPECT_TRUE(parts.processes.was_told(two)) << "another process took the event in";
  EXPECT_FALSE(parts.processes.was_told(0));
  EXPECT_FALSE(parts.processes.has_changed(one));
}

// A process was killed in the middle of a release, and has its bit still.
TEST_F(HandleHoldersTest, AreCountedAnewByTheirBits) {
  parts.holders.hold(one, flow);
  EXPECT_EQ(parts.holders.begin_release(one, flow), 1u);
  parts.holders.recount(flow);
  EXPECT_EQ(cell.holders, 2);
  EXPECT_EQ(parts.holders.begin_release(one, flow), 1u) << "the release is repeated";
  EXPECT_EQ(cell.holder, 0);
}

TEST_F(HandleHoldersTest, HandlesBeyondTheAreaAreHeldByNobody) {
  EXPECT_FALSE(parts.holders.is_held(0, held_flows.flows));
  EXPECT_FALSE(parts.holders.is_held(0, wire::tcp_no_handle));
}

}  // namespace
}  // namespace offpath::channel
