// Rings in place of others at the level of one flow; socket_rings_test.cc has their calls and the deaths of processes.
#include "connections/area/flow_rings.h"

#include <gtest/gtest.h>

#include "testing/sockets/area_parts.h"

namespace offpath::channel {
namespace {

using wire::TcpCommandKind;
using wire::TcpEvent;
namespace tcp_ring = wire::tcp_ring;

class FlowRingsTest : public testing::Test {
 protected:
  void tell(Way way, std::uint32_t bits) {
    TcpEvent told{};
    told.handle = flow;
    told.rings = tcp_ring::of(way, bits);
    parts.rings.take(told);
  }

  AreaParts parts{{.flows = 8, .send_bytes = 16 << 10, .receive_bytes = 16 << 10, .pool_bytes = RingPool::word_bytes}};
  std::uint32_t flow = parts.flow();
  SocketCell& cell = parts.records.cell(flow);
};

TEST_F(FlowRingsTest, AnAdviceIsOwedAndAskedFor) {
  tell(Way::out, tcp_ring::advised);
  EXPECT_EQ(cell.owed, owed_larger_out);
  EXPECT_FALSE(parts.rings.uses_pool());
  EXPECT_TRUE(parts.rings.ask(flow));
  EXPECT_EQ(cell.owed, 0);
  EXPECT_TRUE(parts.rings.uses_pool());
  const auto asked = parts.posted(TcpCommandKind::replace);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].receive_bytes, RingPool::unit_bytes);
  EXPECT_TRUE(cell.is_between_rings());
  EXPECT_EQ(cell.room_to_send(), 0u);
}

TEST_F(FlowRingsTest, NothingIsAskedForWithoutRoomForTheCommand) {
  tell(Way::in, tcp_ring::advised);
  parts.fill_ring();
  EXPECT_FALSE(parts.rings.ask(flow));
  EXPECT_EQ(cell.owed, owed_larger_in);
  EXPECT_FALSE(parts.rings.uses_pool());
}

TEST_F(FlowRingsTest, BytesBeforeThePositionStayInTheRingBefore) {
  const MutableBytes first = parts.rings.present(flow, Way::in);
  tell(Way::in, tcp_ring::advised);
  ASSERT_TRUE(parts.rings.ask(flow));
  const std::uint64_t from = parts.posted(TcpCommandKind::replace).at(0).position;
  EXPECT_EQ(from, cell.allowed);
  tell(Way::in, tcp_ring::taken);
  EXPECT_EQ(cell.owed, owed_allow) << "the larger ring has room for more";
  EXPECT_EQ(parts.rings.present(flow, Way::in).size(), RingPool::unit_bytes);
  EXPECT_EQ(parts.rings.before(flow, Way::in).data(), first.data());
  EXPECT_EQ(parts.rings.bytes_before(flow, from - 10, 30), 10u);
  EXPECT_EQ(parts.rings.bytes_before(flow, from - 10, 5), 5u);
  EXPECT_EQ(parts.rings.bytes_before(flow, from, 30), 0u);
  cell.received = from;
  EXPECT_FALSE(parts.rings.has_left_ring(flow));
  parts.records.set_read(flow, from);
  EXPECT_TRUE(parts.rings.has_left_ring(flow)) << "the agent has to hear of it";
  tell(Way::in, tcp_ring::returned);
  EXPECT_EQ(cell.growth(Way::in), RingGrowth::none);
  EXPECT_FALSE(parts.rings.has_left_ring(flow));
}

TEST_F(FlowRingsTest, ARefusalGivesTheMemoryBack) {
  for (int i = 0; i < 200; ++i) {
    tell(Way::out, tcp_ring::advised);
    ASSERT_TRUE(parts.rings.ask(flow));
    ASSERT_EQ(parts.posted(TcpCommandKind::replace).size(), 1u) << i;
    tell(Way::out, tcp_ring::refused);
    ASSERT_EQ(cell.growth(Way::out), RingGrowth::none);
  }
  parts.rings.note_unused_pool();
  EXPECT_FALSE(parts.rings.uses_pool());
}

// A seccomp filter may kill a process for madvise.
TEST_F(FlowRingsTest, AProcessMayKeepThePagesOfRingsThatItGivesBack) {
  for (const bool keeps : {false, true}) {
    if (keeps) parts.rings.keep_pages();
    tell(Way::out, tcp_ring::advised);
    ASSERT_TRUE(parts.rings.ask(flow));
    const auto asked = parts.posted(TcpCommandKind::replace);
    ASSERT_EQ(asked.size(), 1u);
    std::byte& used = parts.memory.bytes()[asked[0].receive_at];
    used = std::byte{1};
    tell(Way::out, tcp_ring::refused);
    EXPECT_EQ(used, keeps ? std::byte{1} : std::byte{0});
  }
  parts.rings.note_unused_pool();
  EXPECT_FALSE(parts.rings.uses_pool());
}

TEST_F(FlowRingsTest, AnEmptyLargerRingMayBeLeft) {
  EXPECT_FALSE(parts.rings.may_leave(flow, Way::out)) << "it is the first one";
  tell(Way::out, tcp_ring::advised);
  ASSERT_TRUE(parts.rings.ask(flow));
  tell(Way::out, tcp_ring::taken);
  parts.rings.note_acknowledged(flow);
  ASSERT_TRUE(parts.rings.may_leave(flow, Way::out));
  static_cast<void>(parts.posted(TcpCommandKind::replace));
  parts.rings.leave(flow, Way::out);
  const auto left = parts.posted(TcpCommandKind::replace);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].receive_at, parts.records.offset_of(parts.records.first_ring(flow, Way::out)));
  tell(Way::out, tcp_ring::taken | tcp_ring::returned);
  EXPECT_FALSE(parts.rings.has_larger(flow));
  parts.rings.note_unused_pool();
  EXPECT_FALSE(parts.rings.uses_pool());
}

// A process was killed after it had taken the memory, and before the command was posted.
TEST_F(FlowRingsTest, ARecountForgetsACommandThatWasNotPosted) {
  RingStep& step = parts.records.step(flow, Way::out);
  step = {.from = 0, .posted = parts.commands.posted(0), .before = cell.place(Way::out), .next = {0, 16}};
  cell.set_growth(Way::out, RingGrowth::asked);
  parts.rings.recount();
  EXPECT_EQ(cell.growth(Way::out), RingGrowth::none);
  SocketsShared::set(parts.records.shared().uses_pool, true);
  parts.rings.note_unused_pool();
  EXPECT_FALSE(parts.rings.uses_pool());
}

}  // namespace
}  // namespace offpath::channel
