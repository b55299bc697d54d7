// Pools whose members run out of memory or budget, in virtual time.
//
// Programs on two agents fill these with objects for the other one: all are stored, since an eighth of each memory is
// for what comes from members. And rows that have to move to members without room for them: they have arrived when
// there is room.
//
// Seeds: seeds.h.
#include <gtest/gtest.h>

#include "tests/sim/seeds.h"
#include "tests/sim/small_memory_world.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"

namespace offpath::sim {
namespace {

constexpr std::uint64_t memory_bytes = 4 << 20;
constexpr std::uint64_t rows_max = memory_bytes / 16 / 8;  // half of the reserve
constexpr TimeNs patience_ns = SmallMemoryWorld::patience_ns;

class World : public SmallMemoryWorld {
 public:
  World(std::uint64_t seed, std::size_t members) : SmallMemoryWorld(seed, options_of(members)) {}

  void add_program(std::size_t place, const std::string& pool) {
    const Status added = SmallMemoryWorld::add_program(place, pool, 1, rows_max);
    ASSERT_TRUE(added) << added.error().message;
  }

  void send(Program& program, std::uint64_t rows, const std::string& row, const std::string& column) {
    auto ticket = program.host->send(program.columns, rows, row, column, deadline());
    ASSERT_TRUE(ticket) << ticket.error().message;
    program.tickets.push_back(*ticket);
  }
  void wait_stored(Program& program) {
    for (const std::uint64_t ticket : program.tickets) {
      const Status stored =
          program.host->end().wait(program.host->stream(), ticket, channel::Progress::stored, deadline());
      ASSERT_TRUE(stored) << stored.error().message;
    }
    program.tickets.clear();
  }

  // A reader takes stored objects out, at another time than their writers.
  void drop_all() {
    std::vector<std::byte> payload;
    wire::encode(wire::PoolDrop{"rank:/p", "*", "*"}, payload);
    auto dropped = programs[0].host->end().call(wire::EntryKind::pool_drop, payload, deadline());
    ASSERT_TRUE(dropped) << dropped.error().message;
    cluster_->run_for(100 * microsecond_ns);
  }

  [[nodiscard]] bool until(const std::function<bool()>& reached) { return fabric_->run_until(deadline(), reached); }
  [[nodiscard]] std::uint64_t frames() {
    std::uint64_t held = 0;
    for (std::size_t place = 0; place < cluster_->size(); ++place)
      if (cluster_->runs(place)) held += cluster_->dispatcher(place).pools().table().counters().frames;
    return held;
  }

 private:
  [[nodiscard]] static SimCluster::Options options_of(std::size_t members) {
    SimCluster::Options options = small_memory(members, memory_bytes);
    options.dispatcher.pools.put_wait_ns = 30 * second_ns;
    return options;
  }
};

TEST(PoolMemorySimulation, TwoAgentsFullOfObjectsForEachOtherDoNotWaitForEachOther) {
  each_seed(10, [](std::uint64_t seed) {
    World world(seed, 2);
    ASSERT_TRUE(world.cluster_->wait_for_agreement(patience_ns));
    // The pool takes one object at a time on each member, so programs soon fill both with objects for the other one.
    // All have one length: an object leaves room for exactly one other, and the first request gets it.
    const std::uint64_t rows = rows_max / 4 + world.random_.below(rows_max * 3 / 4);
    const std::string pool = fmt::format("rank:/p?budget={}", rows * 8 + 4 * page_bytes);
    constexpr std::size_t programs = 4;
    for (std::size_t i = 0; i < programs; ++i) {
      world.add_program(i % 2, pool);
      if (testing::Test::HasFailure()) return;
    }
    const TimeNs began = world.fabric_->now();
    std::uint64_t sent = 0;
    while (sent < 200) {
      bool any = false;
      for (std::size_t i = 0; i < programs; ++i) {
        auto ticket = world.programs[i].host->send(world.programs[i].columns, rows, fmt::format("for{}", (i + 1) % 2),
                                                   fmt::format("{}", sent), 0);
        if (!ticket && ticket.error().code == Error::would_block) continue;
        ASSERT_TRUE(ticket) << ticket.error().message;
        world.programs[i].tickets.push_back(*ticket);
        any = true;
        ++sent;
      }
      if (!any) world.drop_all();
      ASSERT_LT(world.fabric_->now() - began, 25 * second_ns)
          << sent << " objects sent: the agents wait for each other";
    }
    for (auto& program : world.programs) {
      while (program.host->end().stored(program.host->stream()) < program.tickets.back()) {
        world.drop_all();
        ASSERT_LT(world.fabric_->now() - began, 25 * second_ns) << "all sent: the agents wait for each other";
      }
      world.wait_stored(program);
    }
    for (std::size_t place = 0; place < 2; ++place) {
      const pool::PoolsCounters counters = world.cluster_->dispatcher(place).pools().counters();
      EXPECT_GT(counters.remote_puts, 20u);
      EXPECT_EQ(counters.retries, 0u) << "a put's time was over";
    }
  });
}

TEST(PoolMemorySimulation, RowsThatFindNoRoomAtTheirNewOwnersArriveWhenThereIsRoom) {
  each_seed(10, [](std::uint64_t seed) {
    World world(seed, 3);
    ASSERT_TRUE(world.cluster_->wait_for_agreement(patience_ns));
    // Each member has room for two thirds of the copies and a little more: with one member gone, not for all of them.
    constexpr std::uint64_t rows = 24, row_bytes = 64 << 10;
    world.add_program(0,
                      fmt::format("rank:/p?replicas=2&budget={}", (rows * 2 / 3 + 2) * (row_bytes + 2 * page_bytes)));
    if (testing::Test::HasFailure()) return;
    for (std::uint64_t i = 0; i < rows; ++i) world.send(world.programs[0], row_bytes / 8, fmt::format("row{}", i), "c");
    world.wait_stored(world.programs[0]);
    ASSERT_EQ(world.frames(), 2 * rows);
    world.cluster_->kill(1 + world.random_.below(2));
    ASSERT_TRUE(world.cluster_->wait_for_agreement(patience_ns));
    std::uint64_t failed = 0, under_way = 0;
    const auto count = [&] {
      failed = under_way = 0;
      for (std::size_t place = 0; place < 3; ++place) {
        if (!world.cluster_->runs(place)) continue;
        failed += world.cluster_->dispatcher(place).pools().counters().failed_moves;
        under_way += world.cluster_->dispatcher(place).pools().counters().puts_under_way;
      }
    };
    // A drop can miss a row that is under way (docs/guides/pools.md), so none may be.
    ASSERT_TRUE(world.until([&] { return count(), failed > 0 && under_way == 0; })) << "there was room for all";
    std::uint64_t left = rows;
    for (std::uint64_t i = 0; i < rows; i += 2, --left) {
      std::vector<std::byte> payload;
      const std::string row = fmt::format("row{}", i);
      wire::encode(wire::PoolDrop{"rank:/p", row, "*"}, payload);
      auto dropped = world.programs[0].host->end().call(wire::EntryKind::pool_drop, payload, world.deadline());
      ASSERT_TRUE(dropped) << dropped.error().message;
    }
    EXPECT_TRUE(world.until([&] { return world.frames() == 2 * left; }))
        << world.frames() << " copies of " << left << " rows, " << failed << " moves had failed";
  });
}

}  // namespace
}  // namespace offpath::sim
