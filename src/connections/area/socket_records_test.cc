#include "connections/area/socket_records.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "connections/area/process_table.h"
#include "connections/area/ring_pool.h"
#include "testing/sockets/area_parts.h"

namespace offpath::channel {
namespace {

constexpr SocketOptions odd{
    .flows = 65, .send_bytes = 1024, .receive_bytes = 4096, .pool_bytes = RingPool::word_bytes, .kept_bytes = 100};

TEST(SocketRecords, LieBesideEachOtherWithinTheArea) {
  const AreaMemory memory(SocketRecords::layout_of(odd).bytes);
  const SocketRecords records(memory.bytes(), odd);
  struct Part {
    const std::byte *begin, *end;
  };
  std::vector<Part> parts;
  const auto add = [&](const void* first, const void* last, std::size_t bytes) {
    parts.push_back({static_cast<const std::byte*>(first), static_cast<const std::byte*>(last) + bytes});
  };
  const std::uint32_t last = odd.flows - 1;
  add(memory.bytes().data(), memory.bytes().data(), records.layout().own());  // the agent's rings
  add(&records.shared(), &records.shared(), sizeof(SocketsShared));
  add(&records.cell(0), &records.cell(last), sizeof(SocketCell));
  add(&records.accept_slots(0, 0), &records.accept_slots(last, wire::tcp_cores_max - 1), sizeof(AcceptSlots));
  add(&records.turn_lock(0, Way::out), &records.turn_lock(last, Way::in), sizeof(TurnLock));
  add(records.processes(), records.processes(), wire::tcp_processes_max * ProcessTable::process_bytes(odd.flows));
  add(&records.step(0, Way::out), &records.step(last, Way::in), sizeof(RingStep));
  add(&records.remote_address(0), &records.remote_address(last), sizeof(wire::IpAddress));
  add(&records.rest(0), &records.rest(last), sizeof(Rest));
  add(records.pool_words().data(), records.pool_words().data(), records.pool_words().size_bytes());
  add(records.kept().data(), records.kept().data(), records.kept().size());
  add(records.first_ring(0, Way::out).data(), records.first_ring(last, Way::in).data(), odd.receive_bytes);
  add(records.pool_ring(0, 1).data(), records.pool_ring(0, 1).data(), odd.pool_bytes);
  for (std::size_t i = 1; i < parts.size(); ++i) EXPECT_LE(parts[i - 1].end, parts[i].begin) << i;
  EXPECT_EQ(parts.back().end, memory.bytes().data() + memory.bytes().size());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&records.cell(0)) % alignof(SocketCell), 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&records.turn_lock(0, Way::out)) % alignof(TurnLock), 0u);
}

TEST(SocketRecords, RingsOfAFlowFollowEachOther) {
  const AreaMemory memory(SocketRecords::layout_of(odd).bytes);
  const SocketRecords records(memory.bytes(), odd);
  for (std::uint32_t handle = 0; handle + 1 < odd.flows; ++handle) {
    EXPECT_EQ(records.first_ring(handle, Way::out).size(), odd.send_bytes);
    EXPECT_EQ(records.first_ring(handle, Way::out).data() + odd.send_bytes, records.first_ring(handle, Way::in).data());
    EXPECT_EQ(records.first_ring(handle, Way::in).data() + odd.receive_bytes,
              records.first_ring(handle + 1, Way::out).data());
  }
}

TEST(SocketRecords, TheReadPositionIsShownToTheAgent) {
  AreaParts parts(odd);
  parts.records.set_read(7, 12345);
  EXPECT_EQ(parts.records.cell(7).read, 12345u);
  EXPECT_EQ(parts.agent.word(parts.records.layout().reads() + 7 * sizeof(std::uint64_t)).load(), 12345u);
}

}  // namespace
}  // namespace offpath::channel
