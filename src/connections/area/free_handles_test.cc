#include "connections/area/free_handles.h"

#include <gtest/gtest.h>

#include <set>

#include "testing/sockets/area_parts.h"

namespace offpath::channel {
namespace {

constexpr SocketOptions twelve_flows{.flows = 12, .send_bytes = 4096, .receive_bytes = 4096};

TEST(FreeHandles, OfACoreAreTakenUntilNoneIsLeft) {
  AreaParts parts(twelve_flows, 3);
  std::set<std::uint32_t> taken;
  while (const auto handle = parts.handles.take(1)) {
    EXPECT_EQ(*handle % 3, 1u);
    EXPECT_TRUE(taken.insert(*handle).second);
  }
  EXPECT_EQ(taken.size(), 4u);
  EXPECT_FALSE(parts.handles.has_any(1));
  EXPECT_TRUE(parts.handles.has_any(2));
  parts.handles.give(4);
  EXPECT_EQ(parts.handles.take(1), 4u);
}

TEST(FreeHandles, CoresWithoutAnyMissTheirTurn) {
  AreaParts parts(twelve_flows, 3);
  while (parts.handles.take(1)) {
  }
  std::set<std::uint32_t> cores;
  for (int i = 0; i < 12; ++i) cores.insert(parts.handles.next_core());
  EXPECT_EQ(cores, (std::set<std::uint32_t>{0, 2}));
}

TEST(FreeHandles, AreClearWhenTheyAreTakenAgain) {
  AreaParts parts(twelve_flows);
  const auto handle = parts.flow();
  SocketCell& cell = parts.records.cell(handle);
  cell.offered = cell.acknowledged = cell.received = 100;
  cell.gone = cell.finishing = true;
  parts.records.set_read(handle, 100);
  parts.handles.give(handle);
  ASSERT_EQ(parts.handles.take(0), handle);
  EXPECT_EQ(cell.offered + cell.acknowledged + cell.received + cell.read, 0u);
  EXPECT_EQ(cell.allowed, twelve_flows.receive_bytes);
  EXPECT_FALSE(cell.gone || cell.finishing);
  EXPECT_EQ(cell.is, SocketCell::Is::free);
  EXPECT_FALSE(parts.processes.is_held(0, handle)) << "a process died before it cleared its bit";
  EXPECT_EQ(cell.used[0], 100u) << "pages of its first rings stay";
  EXPECT_TRUE(parts.memory_holders.any());
}

}  // namespace
}  // namespace offpath::channel
