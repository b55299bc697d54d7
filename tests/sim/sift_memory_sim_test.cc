// A sift pool with copies on agents whose memory is nearly all taken, in virtual time.
//
// Programs on every agent fill its memory with particles as fast as they are taken. An agent keeps the rows that it
// takes at another one too, before it answers: copies and what waits for them need each other's memory, at agents that
// are all full. All is stored in time, for each has set aside room for the others' copies. And a pool whose copies
// never fit is refused when it is made.
//
// Seeds: seeds.h.
#include <gtest/gtest.h>

#include "tests/sim/seeds.h"
#include "tests/sim/small_memory_world.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/sift_messages.h"

namespace offpath::sim {
namespace {

constexpr std::uint64_t memory_bytes = 6 << 20;
constexpr std::uint64_t rows_max = 1000;
constexpr TimeNs patience_ns = SmallMemoryWorld::patience_ns;

class World : public SmallMemoryWorld {
 public:
  World(std::uint64_t seed, std::size_t members) : SmallMemoryWorld(seed, options_of(members)) {}

  Status add_program(std::size_t place, const std::string& pool) {
    return SmallMemoryWorld::add_program(place, pool, 2, rows_max);
  }

  // Pieces of the last stage taken, over all members: each row is in one of them.
  [[nodiscard]] std::uint64_t rows_in_tracks() {
    std::uint64_t rows = 0;
    for (std::size_t place = 0; place < cluster_->size(); ++place)
      for (const auto& pool : cluster_->dispatcher(place).sifts().pools()) rows += pool.stages.back().rows_taken;
    return rows;
  }
  // The reserves of all members.
  [[nodiscard]] std::uint64_t reserved_in_use() {
    std::uint64_t bytes = 0;
    for (std::size_t place = 0; place < cluster_->size(); ++place) {
      const pool::Pools& pools = cluster_->dispatcher(place).pools();
      bytes += pools.reserved() - pools.reserved_left();
    }
    return bytes;
  }

 private:
  [[nodiscard]] static SimCluster::Options options_of(std::size_t members) {
    SimCluster::Options options = small_memory(members, memory_bytes);
    options.dispatcher.buffers.huge_pages = false;
    return options;
  }
};

TEST(SiftMemorySimulation, AgentsFullOfPiecesAndOfEachOthersCopiesDoNotWaitForEachOther) {
  each_seed(10, [](std::uint64_t seed) {
    constexpr std::size_t members = 3, programs = 12;
    World world(seed, members);
    ASSERT_TRUE(world.cluster_->wait_for_agreement(patience_ns));
    const std::uint64_t stages = 1 + world.random_.below(2);
    const std::string pool =
        fmt::format("sift:/t?key=c0&stages={}&fanout=4&threshold={}&budget={}&age=5ms&replicas=2", stages,
                    16384 << world.random_.below(3), 300'000 + world.random_.below(300'000));
    // The first one makes it, with all members; by the name alone it is the same one everywhere.
    for (std::size_t i = 0; i < programs; ++i) {
      const Status added = world.add_program(i % members, pool);
      ASSERT_TRUE(added) << added.error().message;
    }
    const TimeNs began = world.fabric_->now();
    std::uint64_t rows_sent = 0, in_use_most = 0;
    std::int64_t sent = 0;
    while (sent < 120) {
      bool any = false;
      for (World::Program& program : world.programs) {
        const std::uint64_t rows = 1 + world.random_.below(rows_max);
        auto ticket = program.host->send(program.columns, rows, fmt::format("step{:06}", sent), "c", 0);
        if (!ticket && ticket.error().code == Error::would_block) continue;
        ASSERT_TRUE(ticket) << ticket.error().message;
        program.tickets.push_back(*ticket);
        rows_sent += rows;
        any = true;
        ++sent;
      }
      if (!any) world.cluster_->run_for(100 * microsecond_ns);
      in_use_most = std::max(in_use_most, world.reserved_in_use());
      ASSERT_LT(world.fabric_->now() - began, 25 * second_ns) << sent << " frames sent: the agents wait for each other";
    }
    for (World::Program& program : world.programs) {
      if (program.tickets.empty()) continue;
      const Status stored = program.host->end().wait(program.host->stream(), program.tickets.back(),
                                                     channel::Progress::stored, world.deadline());
      ASSERT_TRUE(stored) << stored.error().message;
    }
    std::vector<std::byte> payload;
    wire::encode(wire::SiftFlush{patience_ns, "sift:/t"}, payload);
    const auto flushed = world.programs[0].host->end().call(wire::EntryKind::sift_flush, payload, world.deadline());
    ASSERT_TRUE(flushed) << flushed.error().message;
    EXPECT_LT(world.fabric_->now() - began, 25 * second_ns) << "some copy's time was over";
    EXPECT_EQ(world.rows_in_tracks(), rows_sent);
    EXPECT_GT(in_use_most, 0u) << "no copy lay in what was set aside";
    for (std::size_t place = 0; place < members; ++place)
      EXPECT_GT(world.cluster_->dispatcher(place).pools().counters().served_puts, 0u);
  });
}

TEST(SiftMemorySimulation, PiecesAreStoredThoughAllOtherMemoryIsTakenWhereTheirCopiesGo) {
  constexpr int frames = 5;  // the stage's budget is for more
  World world(1, 2);
  ASSERT_TRUE(world.cluster_->wait_for_agreement(patience_ns));
  ASSERT_TRUE(world.add_program(0, "sift:/t?key=c0&fanout=4&budget=768KiB&threshold=256KiB&age=1h&replicas=2"));
  ASSERT_TRUE(world.add_program(0, "rank:/other"));
  // Members' objects may use all memory, unlike programs.
  const auto send = [&](World::Program& program, std::uint64_t rows, const std::string& row,
                        const std::string& column) {
    const auto ticket = program.host->send(program.columns, rows, row, column, world.deadline());
    ASSERT_TRUE(ticket) << ticket.error().message;
    const Status stored =
        program.host->end().wait(program.host->stream(), *ticket, channel::Progress::stored, world.deadline());
    ASSERT_TRUE(stored) << stored.error().message;
  };
  const mover::Mover& full = world.cluster_->dispatcher(1).mover();
  for (int i = 0; full.credit().memory_free() >= (24 << 10) && !testing::Test::HasFailure(); ++i)
    send(world.programs[1], rows_max, "row1", fmt::format("{}", i));
  const TimeNs began = world.fabric_->now();
  for (int step = 0; step < frames && !testing::Test::HasFailure(); ++step)
    send(world.programs[0], rows_max, fmt::format("step{}", step), "c");
  EXPECT_LT(world.fabric_->now() - began, second_ns) << "a copy waited for the memory of others";
  EXPECT_LT(full.credit().memory_free(), 24u << 10);
  EXPECT_GE(world.reserved_in_use(), frames * rows_max * 16);
  // They are below the threshold. Their parts go there as well, when there is memory.
  std::vector<std::byte> payload;
  wire::encode(wire::PoolDrop{"rank:/other", "*", "*"}, payload);
  const auto dropped = world.programs[1].host->end().call(wire::EntryKind::pool_drop, payload, world.deadline());
  ASSERT_TRUE(dropped) << dropped.error().message;
  payload.clear();
  wire::encode(wire::SiftFlush{patience_ns, "sift:/t"}, payload);
  const auto flushed = world.programs[0].host->end().call(wire::EntryKind::sift_flush, payload, world.deadline());
  ASSERT_TRUE(flushed) << flushed.error().message;
  EXPECT_EQ(world.rows_in_tracks(), frames * rows_max);
}

TEST(SiftMemorySimulation, WhatIsSetAsideIsForNobodyElseAndComesBackWithTheDrop) {
  World world(1, 2);
  ASSERT_TRUE(world.cluster_->wait_for_agreement(patience_ns));
  const std::uint64_t before = world.cluster_->dispatcher(0).mover().credit().memory_free();
  ASSERT_TRUE(world.add_program(0, "sift:/t?key=c0&budget=512KiB&threshold=64KiB&replicas=2"));
  world.cluster_->run_for(10 * millisecond_ns);
  for (std::size_t place = 0; place < 2; ++place) {
    const std::uint64_t aside = world.cluster_->dispatcher(place).pools().reserved();
    EXPECT_GE(aside, 2u * (512 << 10)) << "two stages";
    EXPECT_LE(world.cluster_->dispatcher(place).mover().credit().memory_free(), before - aside);
  }
  std::vector<std::byte> payload;
  wire::encode(wire::PoolDrop{"sift:/t", "*", "*"}, payload);
  const auto dropped = world.programs[0].host->end().call(wire::EntryKind::pool_drop, payload, world.deadline());
  ASSERT_TRUE(dropped) << dropped.error().message;
  world.cluster_->run_for(10 * millisecond_ns);
  for (std::size_t place = 0; place < 2; ++place) EXPECT_EQ(world.cluster_->dispatcher(place).pools().reserved(), 0u);
}

TEST(SiftMemorySimulation, APoolWhoseCopiesDoNotFitIsRefusedWhenItIsMade) {
  World world(1, 2);
  ASSERT_TRUE(world.cluster_->wait_for_agreement(patience_ns));
  const std::string pool = "sift:/t?key=c0&budget=2MiB&threshold=64KiB";
  const Status refused = world.add_program(0, pool + "&replicas=2");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Error::too_large);
  for (const char* part : {"sift:/t", "dpu00", "budget=", "replicas=", "memory.bytes_max"})
    EXPECT_NE(refused.error().message.find(part), std::string::npos)
        << part << " is not in: " << refused.error().message;
  EXPECT_NE(refused.error().message.find(std::to_string(memory_bytes / 2)), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(world.cluster_->dispatcher(0).pools().reserved(), 0u);
  EXPECT_TRUE(world.cluster_->dispatcher(0).sifts().pools().empty());
  EXPECT_TRUE(world.add_program(0, pool)) << "without copies it does not concern them";
}

}  // namespace
}  // namespace offpath::sim
