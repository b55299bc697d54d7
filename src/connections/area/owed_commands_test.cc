#include "connections/area/owed_commands.h"

#include <gtest/gtest.h>

#include "testing/sockets/area_parts.h"

namespace offpath::channel {
namespace {

using wire::TcpCommandKind;
constexpr SocketOptions owing_flows{.flows = 64, .send_bytes = 4096, .receive_bytes = 4096};

TEST(OwedCommands, AreGivenAtOnceWhereThereIsRoom) {
  AreaParts parts(owing_flows);
  const auto flow = parts.flow();
  parts.records.set_read(flow, 100);
  parts.owed.owe(flow, owed_allow | owed_finish);
  const auto all = parts.agent.commands();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].kind, TcpCommandKind::allow);
  EXPECT_EQ(all[0].position, 100u + owing_flows.receive_bytes);
  EXPECT_EQ(all[1].kind, TcpCommandKind::finish);
  EXPECT_TRUE(parts.owed.empty());
  EXPECT_FALSE(parts.records.shared().is_unsettled());
}

TEST(OwedCommands, OverALinkSayHowFarTheFlowWasRead) {
  AreaParts parts(owing_flows);
  parts.agent.word(wire::tcp_word::linked).store(1);
  parts.commands.learn();
  const auto flow = parts.flow();
  parts.records.set_read(flow, 100);
  parts.owed.owe(flow, owed_finish);
  EXPECT_EQ(parts.posted(TcpCommandKind::finish).at(0).send_at, 100u);
}

TEST(OwedCommands, WaitForRoomOnceOfEachKind) {
  AreaParts parts(owing_flows);
  const auto first = parts.flow(), second = parts.flow();
  parts.fill_ring();
  for (int i = 0; i < 3; ++i) parts.owed.owe(first, owed_finish);
  parts.owed.owe(second, owed_finish);
  parts.owed.owe(second, owed_release);
  EXPECT_TRUE(parts.records.shared().is_unsettled());
  parts.owed.settle_some();
  EXPECT_FALSE(parts.owed.empty()) << "there is no room";
  EXPECT_TRUE(parts.posted(TcpCommandKind::finish).empty());
  parts.owed.settle_some();
  EXPECT_TRUE(parts.owed.empty());
  const auto all = parts.agent.commands();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[2].kind, TcpCommandKind::release) << "after the end of the stream";
  EXPECT_EQ(all[2].handle, second);
}

TEST(OwedCommands, OfOneFullRingDoNotHoldUpThoseOfAnother) {
  AreaParts parts(owing_flows, 2);
  const auto zero = parts.flow(0), one = parts.flow(1);
  parts.fill_ring(0);
  parts.fill_ring(1);
  parts.owed.owe(zero, owed_finish);
  parts.owed.owe(one, owed_finish);
  static_cast<void>(parts.posted(TcpCommandKind::finish, 1));
  parts.owed.settle_some();
  EXPECT_EQ(parts.posted(TcpCommandKind::finish, 1).size(), 1u);
  EXPECT_FALSE(parts.owed.empty());
}

// A process was killed between the mark and the set.
TEST(OwedCommands, AreFoundByTheirMarks) {
  AreaParts parts(owing_flows);
  const auto flow = parts.flow();
  parts.records.cell(flow).owed = owed_abort;
  parts.owed.settle_some();
  EXPECT_TRUE(parts.posted(TcpCommandKind::abort).empty());
  for (std::uint32_t handle = 0; handle < owing_flows.flows; ++handle) parts.owed.recount(handle);
  parts.owed.settle_some();
  EXPECT_EQ(parts.posted(TcpCommandKind::abort).size(), 1u);
}

TEST(OwedCommands, NameTheOnlyHolderOrEverybody) {
  AreaParts parts(owing_flows);
  const auto flow = parts.flow();
  const auto child = parts.processes.add().value();
  EXPECT_TRUE(parts.holders.has_changed(flow));
  parts.owed.owe(flow, owed_holders);
  EXPECT_EQ(parts.posted(TcpCommandKind::holders).at(0).position, wire::tcp_process_bit(0));
  EXPECT_FALSE(parts.holders.has_changed(flow));
  parts.holders.hold(child, flow);
  EXPECT_TRUE(parts.holders.has_changed(flow));
  parts.owed.owe(flow, owed_holders);
  EXPECT_EQ(parts.posted(TcpCommandKind::holders).at(0).position, ~0ull);
}

}  // namespace
}  // namespace offpath::channel
