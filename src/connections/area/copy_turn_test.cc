#include "connections/area/copy_turn.h"

#include <gtest/gtest.h>

#include <mutex>
#include <optional>

#include "testing/sockets/area_parts.h"

namespace offpath::channel {
namespace {

constexpr SocketOptions four_flows{.flows = 4, .send_bytes = 4096, .receive_bytes = 4096};
constexpr std::size_t small = 100, large = 4096;

// In place of the area's lock: whether it is held, and how often it was given up.
struct CountedLock {
  void lock() { held = true; }
  void unlock() {
    held = false;
    ++given_up;
  }
  bool held = true;
  int given_up = 0;
};

class CopyTurnTest : public testing::Test {
 protected:
  AreaParts parts{four_flows};
  std::uint32_t flow = parts.flow();
  SocketCell& cell = parts.records.cell(flow);
  CountedLock lock;
};

TEST_F(CopyTurnTest, AShortCopyKeepsTheLock) {
  CopyTurn turn(parts.records, flow, Way::out);
  EXPECT_FALSE(turn.wait(lock, small));
  bool was_held = false;
  EXPECT_FALSE(turn.copy(lock, [&] { was_held = lock.held; }));
  EXPECT_TRUE(was_held);
  EXPECT_EQ(lock.given_up, 0);
}

TEST_F(CopyTurnTest, ALongCopyGivesTheLockUpAndShowsItsDirection) {
  CopyTurn turn(parts.records, flow, Way::out);
  EXPECT_TRUE(turn.wait(lock, large));
  EXPECT_FALSE(turn.wait(lock, large)) << "it has its turn";
  EXPECT_TRUE(turn.copy(lock, [&] {
    EXPECT_FALSE(lock.held);
    EXPECT_TRUE(cell.is_copied(Way::out));
    EXPECT_FALSE(cell.is_copied(Way::in));
  }));
  EXPECT_TRUE(lock.held);
  EXPECT_EQ(cell.copying, 0);
}

TEST_F(CopyTurnTest, AShortCopyWaitsWhileALongOneGoesOn) {
  CopyTurn turn(parts.records, flow, Way::in);
  cell.copying = SocketCell::bit(Way::in);  // of a process that died: nobody has the direction's lock
  EXPECT_TRUE(turn.wait(lock, small));
  EXPECT_EQ(cell.copying, 0);
}

TEST_F(CopyTurnTest, BothDirectionsHaveTurnsAtOnce) {
  CopyTurn out(parts.records, flow, Way::out), in(parts.records, flow, Way::in);
  EXPECT_TRUE(out.wait(lock, large));
  EXPECT_TRUE(in.wait(lock, large)) << "or it would wait for the other one for ever";
}

}  // namespace
}  // namespace offpath::channel
