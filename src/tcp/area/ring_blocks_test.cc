// Blocks of rings that several cores share: in threads, and as a program on several cores uses its pool.
#include "tcp/area/ring_blocks.h"

#include <thread>

#include "testing/tcp/cores.h"
#include "testing/tcp/growing_rings.h"
#include "testing/tcp/two_programs.h"

namespace offpath::tcp {
namespace {

constexpr std::uint32_t block_bytes = RingBlocks::block_bytes;

TEST(RingBlocks, AreLentToOneRingAtATime) {
  RingBlocks blocks(16 * block_bytes);
  EXPECT_TRUE(blocks.lend(4 * block_bytes, 4 * block_bytes));
  EXPECT_FALSE(blocks.lend(4 * block_bytes, 4 * block_bytes));
  EXPECT_FALSE(blocks.lend(0, 5 * block_bytes));
  EXPECT_TRUE(blocks.lend(0, 4 * block_bytes)) << "the attempt before has kept some";
  blocks.give_back(4 * block_bytes, 4 * block_bytes);
  EXPECT_TRUE(blocks.lend(4 * block_bytes, 4 * block_bytes));
  EXPECT_FALSE(blocks.keep_for_first(7 * block_bytes + 100, 1024));
  EXPECT_TRUE(blocks.keep_for_first(9 * block_bytes - 512, 1024));
  EXPECT_FALSE(blocks.lend(9 * block_bytes, block_bytes));
  EXPECT_TRUE(blocks.lend(15 * block_bytes, block_bytes));
}

TEST(RingBlocks, AreChargedOnce) {
  RingBlocks blocks(16 * block_bytes);
  EXPECT_EQ(blocks.cost(block_bytes, 2 * block_bytes), 2u * block_bytes);
  EXPECT_EQ(blocks.charge(block_bytes, 2 * block_bytes), 2u * block_bytes);
  EXPECT_EQ(blocks.cost(0, 4 * block_bytes), 2u * block_bytes);
  EXPECT_EQ(blocks.charge(0, 4 * block_bytes), 2u * block_bytes);
  EXPECT_EQ(blocks.charge(0, 4 * block_bytes), 0u);
  EXPECT_EQ(blocks.charge(5 * block_bytes + 100, 1024), 1u * block_bytes);
}

// A ring that one thread has is written to by no other, and all memory that is charged exists.
TEST(RingBlocks, AreOneCoresAtATime) {
  constexpr std::uint32_t units = 8, unit_bytes = 4 * block_bytes, cores = 3;
  RingBlocks blocks(units * unit_bytes);
  std::array<int, units> owners{};
  std::array<std::uint64_t, cores> charged{};
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t core = 0; core < cores; ++core)
      threads.emplace_back([&, core] {
        std::mt19937 random(core);
        for (int i = 0; i < 20'000; ++i) {
          const std::uint32_t unit = random() % units, at = unit * unit_bytes;
          if (!blocks.lend(at, unit_bytes)) continue;
          charged[core] += blocks.charge(at, unit_bytes);
          OFP_ASSERT(owners[unit]++ == 0);
          --owners[unit];
          blocks.give_back(at, unit_bytes);
        }
      });
  }
  EXPECT_EQ(charged[0] + charged[1] + charged[2], units * unit_bytes);
}

// ---- a program on two cores

constexpr SocketOptions pooled_on_cores{
    .flows = 16, .send_bytes = first_bytes, .receive_bytes = first_bytes, .pool_bytes = channel::RingPool::word_bytes};

class RingsOfTwoCores : public testing::Test {
 protected:
  RingsOfTwoCores() {
    settle(second_ns);
    listener = server.area->listen(port, 2).value();
    settle(second_ns);
  }
  void settle(TimeNs duration) {
    world.run_until([] { return false; }, duration,
                    [&] {
                      const bool server_worked = server.area->take_in();
                      return client.area->take_in() || server_worked;
                    });
  }
  // A connection of the client on this core over which the server sends so much.
  void receive(std::uint32_t core, std::uint64_t count) {
    SocketArea::Handle near = client.area->connect({TestNetwork::address(1), port}).value();
    while (client.area->core_of(near) != core) {
      client.area->abort(near);
      near = client.area->connect({TestNetwork::address(1), port}).value();
    }
    std::optional<SocketArea::Handle> far;
    std::uint64_t sent = 0, read = 0;
    std::vector<std::byte> bytes(20'000);
    ASSERT_TRUE(world.run_until(
        [&] { return read == count; }, 600 * second_ns,
        [&] {
          bool worked = client.area->take_in();
          worked |= server.area->take_in();
          if (!far)
            if (const auto taken = server.area->accept(listener))
              if (server.area->look(*taken)->remote.port == client.area->look(near)->local.port) far = *taken;
          if (far && sent < count)
            if (const auto taken =
                    server.area->send(*far, Bytes(bytes).first(std::min<std::uint64_t>(bytes.size(), count - sent))))
              sent += *taken, worked = true;
          if (const auto taken = client.area->receive(near, bytes)) {
            read += *taken;
            worked = true;
          }
          return worked;
        }));
    largest = std::max(largest, client.area->look(near)->receive_ring);
    client.area->close(near);
    server.area->close(*far);
    settle(10 * second_ns);
  }
  TcpService::ProgramStatus status(std::uint32_t core) { return world.sides[0]->all[core]->service.programs().at(0); }

  CoreWorld world{path(5 * millisecond_ns), {2, 1}};
  TestProgram &client = world.add(0, pooled_on_cores), &server = world.add(1, {64, 1 << 20, 65'536});
  SocketArea::Handle listener = 0;
  std::uint32_t largest = 0;
};

// The memory of a connection that has ended serves the next one, whichever core has that.
TEST_F(RingsOfTwoCores, AreChargedByOneOfThem) {
  for (int i = 0; i < 3; ++i)
    for (const std::uint32_t core : {0u, 1u}) receive(core, 3'000'000);
  EXPECT_GT(largest, first_bytes);
  for (const std::uint32_t core : {0u, 1u}) {
    EXPECT_GT(world.sides[0]->all[core]->service.counters().rings_grown, 2u);
    EXPECT_EQ(status(core).lent_bytes, 0u);
  }
  // Each flow had a ring of a sixteenth of the pool, and one of a unit before it, in the same places.
  EXPECT_LE(status(0).receive_bytes + status(1).receive_bytes,
            pooled_on_cores.flows * first_bytes + pooled_on_cores.pool_bytes / 16 + channel::RingPool::unit_bytes);
  EXPECT_TRUE(world.sides[0]->ended.empty());
}

// Bytes that peers send to two flows would be mixed.
TEST_F(RingsOfTwoCores, EndTheirProgramIfItNamesThemOnBoth) {
  std::array<SocketArea::Handle, 2> flows{};
  for (std::uint32_t core = 0; core < 2; ++core) do
      flows[core] = client.area->connect({TestNetwork::address(1), port}).value();
    while (client.area->core_of(flows[core]) != core);
  settle(second_ns);
  for (const auto flow : flows) ASSERT_TRUE(client.area->look(flow)->connected);
  // Each core advises a ring once half of one has come within a round trip; the program does not answer by itself.
  const std::uint64_t at = client.layout.bytes - (64 << 10);
  for (std::uint32_t core = 0; core < 2; ++core) {
    wire::TcpCommand command{};
    command.kind = wire::TcpCommandKind::replace;
    command.handle = flows[core];
    command.flags = static_cast<std::uint16_t>(wire::TcpWay::out);
    command.receive_at = at;
    command.receive_bytes = 64 << 10;
    const auto refused = world.sides[0]->ended.size();
    client.write_command(command, core);
    settle(100 * millisecond_ns);
    EXPECT_EQ(world.sides[0]->ended.size(), refused) << "without an advice it is refused, and lent to nobody";
  }
  auto blocks = world.sides[0]->all[0]->service.blocks(client.number);
  ASSERT_TRUE(blocks->lend(at, 64 << 10)) << "as core 0 does";
  wire::TcpCommand command{};
  command.kind = wire::TcpCommandKind::replace;
  command.handle = flows[1];
  command.flags = static_cast<std::uint16_t>(wire::TcpWay::out);
  command.receive_at = at;
  command.receive_bytes = 64 << 10;
  client.write_command(command, 1);
  settle(100 * millisecond_ns);
  ASSERT_EQ(world.sides[0]->ended.size(), 1u);
  EXPECT_NE(world.sides[0]->ended[0].why.message.find("where another one is"), std::string::npos);
}

}  // namespace
}  // namespace offpath::tcp
