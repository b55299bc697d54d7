// When memory of one flow goes back; socket_rings_test.cc has first rings again.
#include "connections/area/idle_memory.h"

#include <gtest/gtest.h>

#include "testing/sockets/area_parts.h"

namespace offpath::channel {
namespace {

using wire::TcpCommandKind;
using wire::TcpEvent;

class IdleMemoryTest : public testing::Test {
 protected:
  static constexpr std::uint32_t ring_bytes = 256 << 10;

  // Looks for so many seconds. True: there is still memory to give back.
  bool look(int seconds) {
    for (int i = 0; i < seconds; ++i, now += second_ns) {
      auto look = parts.idle.begin(now);
      EXPECT_TRUE(look);
      while (parts.idle.look(*look, now)) {
      }
    }
    return parts.memory_holders.find_any();
  }
  void receive(std::uint64_t bytes) {
    cell.received += bytes;
    parts.records.set_read(flow, cell.received);
    parts.memory_holders.note(flow);
  }

  AreaParts parts{{.flows = 8, .send_bytes = ring_bytes, .receive_bytes = ring_bytes}};
  std::uint32_t flow = parts.flow();
  SocketCell& cell = parts.records.cell(flow);
  TimeNs now = 100 * second_ns;
};

TEST_F(IdleMemoryTest, AWindowIsShutOnceManyBytesWereReadAndNothingComes) {
  receive(100 << 10);
  look(1);
  EXPECT_TRUE(parts.posted(TcpCommandKind::shut).empty()) << "bytes have come since the last look";
  look(1);
  EXPECT_EQ(parts.posted(TcpCommandKind::shut).size(), 1u);
  EXPECT_TRUE(parts.idle.is_shutting_any());
  TcpEvent told{};
  told.handle = flow;
  told.shut = wire::tcp_shut::done;
  parts.idle.on_shut(told);
  EXPECT_EQ(cell.owed, owed_allow) << "which opens the window";
  EXPECT_EQ(cell.used[1], 0u);
  parts.owed.owe(flow, 0);
  EXPECT_FALSE(parts.idle.is_shutting_any());
  EXPECT_FALSE(look(1));
}

TEST_F(IdleMemoryTest, FewBytesStay) {
  receive(64 << 10);
  look(20);
  EXPECT_TRUE(parts.posted(TcpCommandKind::shut).empty());
}

TEST_F(IdleMemoryTest, UnreadBytesStay) {
  receive(100 << 10);
  cell.received += 1;
  look(20);
  EXPECT_TRUE(parts.posted(TcpCommandKind::shut).empty());
}

TEST_F(IdleMemoryTest, PagesOfWhatWasSentGoBackAfterTenSeconds) {
  cell.offered = cell.acknowledged = 1000;
  parts.memory_holders.note(flow);
  EXPECT_TRUE(look(10));
  EXPECT_EQ(cell.used[0], 1000u);
  EXPECT_FALSE(look(2));
  EXPECT_EQ(cell.used[0], 0u);
}

TEST_F(IdleMemoryTest, AThreadThatCopiesKeepsThem) {
  cell.offered = cell.acknowledged = 1000;
  cell.copying = SocketCell::bit(Way::out);
  parts.memory_holders.note(flow);
  EXPECT_TRUE(look(30));
  EXPECT_EQ(cell.used[0], 1000u);
}

TEST_F(IdleMemoryTest, NobodyLooksTwiceInASecond) {
  EXPECT_TRUE(parts.idle.begin(now));
  EXPECT_FALSE(parts.idle.begin(now + second_ns / 2));
  EXPECT_TRUE(parts.idle.begin(now + second_ns));
}

}  // namespace
}  // namespace offpath::channel
