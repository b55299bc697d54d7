// Ports at the level of the table; program_ports_test.cc has the commands and connections.
#include "tcp/program/port_table.h"

#include <gtest/gtest.h>

#include "testing/tcp/service_parts.h"

namespace offpath::tcp {
namespace {

constexpr std::uint16_t shared_port = 4000;

class PortTableTest : public testing::Test {
 protected:
  ServiceParts parts;
  Program &one = parts.add({.user = 1}), &same = parts.add({.user = 1}), &strange = parts.add({.user = 2});
};

TEST_F(PortTableTest, APortIsSharedByOneOwnersPrograms) {
  EXPECT_TRUE(parts.listen(one, 0, shared_port, wire::tcp_reuse_port));
  EXPECT_TRUE(parts.listen(same, 0, shared_port, wire::tcp_reuse_port));
  EXPECT_FALSE(parts.listen(same, 1, shared_port)) << "it does not want to share";
  EXPECT_FALSE(parts.listen(strange, 0, shared_port, wire::tcp_reuse_port));
}

TEST_F(PortTableTest, ListenersThatShareAPortTakeConnectionsInTurn) {
  ASSERT_TRUE(parts.listen(one, 0, shared_port, wire::tcp_reuse_port));
  ASSERT_TRUE(parts.listen(same, 0, shared_port, wire::tcp_reuse_port));
  for (std::uint32_t i = 1; i <= 2; ++i) {
    parts.slot(one, 0, i);
    parts.slot(same, 0, i);
  }
  std::vector<const Program*> took;
  while (const auto slot = parts.ports.take_slot(test_family(), shared_port)) took.push_back(slot->program);
  EXPECT_EQ(took, (std::vector<const Program*>{&one, &same, &one, &same}));
  EXPECT_EQ(parts.core.counters.without_accept_slot, 1u);
}

TEST_F(PortTableTest, TheStackKnowsAListenerAsLongAsThereIsOne) {
  ASSERT_TRUE(parts.listen(one, 0, shared_port, wire::tcp_reuse_port));
  ASSERT_TRUE(parts.listen(same, 3, shared_port, wire::tcp_reuse_port));
  EXPECT_EQ(parts.stack->listener(test_family(), shared_port), ProgramTable::tag_of(one, 0));
  parts.ports.leave(one, 0);
  EXPECT_EQ(parts.stack->listener(test_family(), shared_port), ProgramTable::tag_of(same, 3));
  parts.ports.leave_all(same);
  EXPECT_FALSE(parts.stack->listener(test_family(), shared_port));
}

TEST_F(PortTableTest, AConnectionKeepsItsPortFromOtherOwners) {
  EXPECT_TRUE(parts.ports.claim(one, test_family(), shared_port));
  EXPECT_FALSE(parts.listen(strange, 0, shared_port));
  EXPECT_TRUE(parts.listen(same, 0, shared_port));
  EXPECT_FALSE(parts.ports.claim(strange, test_family(), shared_port)) << "it is another program's";
  parts.ports.leave(same, 0);
  PortTable::unclaim(one, test_family(), shared_port);
  EXPECT_TRUE(parts.listen(strange, 1, shared_port));
}

TEST_F(PortTableTest, AFreePortIsNeitherBoundNorClaimed) {
  const std::uint16_t first = parts.ports.free_port();
  ASSERT_NE(first, 0);
  const auto next = static_cast<std::uint16_t>(first + 1), after = static_cast<std::uint16_t>(first + 2);
  parts.listener(one, 0, next);
  parts.ports.bind(one, 0);
  ASSERT_TRUE(parts.ports.claim(one, test_family(), after));
  EXPECT_EQ(parts.ports.free_port(), first + 3);
}

TEST(PortTableLimits, ASlotThatCannotBeChargedIsNotTaken) {
  ServiceParts parts({.receive_bytes_max = ServiceParts::ring_bytes});
  Program& program = parts.add();
  ASSERT_TRUE(parts.listen(program, 0, shared_port));
  parts.slot(program, 0, 1);
  parts.slot(program, 0, 2);
  EXPECT_TRUE(parts.ports.take_slot(test_family(), shared_port));
  EXPECT_FALSE(parts.ports.take_slot(test_family(), shared_port));
  EXPECT_EQ(parts.core.counters.without_memory, 1u);
  EXPECT_EQ(program.held[0].accept_slots.size(), 1u) << "it waits for memory";
}

}  // namespace
}  // namespace offpath::tcp
