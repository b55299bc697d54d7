// Programs' connections over bad networks, by seed: bytes arrive intact, programs that die or write garbage affect no
// other, and all memory is returned. Seeds: seeds.h.
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "seeds.h"
#include "testing/tcp/programs.h"

namespace offpath::tcp {
namespace {

constexpr std::uint16_t port = 7000;

// A server of one program, and clients of it.
struct Served {
  Served(TestPrograms& world_, TestProgram& server_, TestProgram& client_, std::uint16_t at, std::uint64_t bytes_,
         std::uint64_t seed)
      : world(&world_),
        server(&server_),
        client(&client_),
        bytes(bytes_),
        random(seed),
        listener(server->area->listen(at, 8).value()),
        where(at) {}

  void connect() {
    const auto handle = client->area->connect(TestPrograms::endpoint(1, where));
    ASSERT_TRUE(handle);
    ones.emplace_back(*client->area, *handle, bytes, true, random());
  }
  bool act() {
    bool worked = client->area->take_in();
    worked |= server->area->take_in();
    for (auto accepted = server->area->accept(listener); accepted; accepted = server->area->accept(listener)) {
      others.emplace_back(*server->area, *accepted, bytes, false, random());
      worked = true;
    }
    for (auto* side : {&ones, &others})
      for (Talker& each : *side) worked |= each.act();
    return worked;
  }
  [[nodiscard]] bool done() const {
    const auto closed = [](const Talker& each) { return each.closed; };
    return others.size() == ones.size() && std::ranges::all_of(ones, closed) && std::ranges::all_of(others, closed);
  }
  void expect_whole() const {
    for (const auto* side : {&ones, &others})
      for (const Talker& each : *side) {
        EXPECT_EQ(each.error, wire::TcpError::none);
        EXPECT_EQ(each.received, bytes);
        EXPECT_EQ(each.wrong, 0u);
      }
  }

  TestPrograms* world;
  TestProgram *server, *client;
  std::uint64_t bytes;
  std::mt19937_64 random;
  SocketArea::Handle listener;
  std::uint16_t where;
  std::list<Talker> ones, others;
};

void expect_nothing_left(TestPrograms& world) {
  world.run(400 * second_ns);
  for (const TestPrograms::End& end : world.ends) {
    EXPECT_EQ(end.stack->flows(), 0u);
    for (const auto& program : end.service.programs()) EXPECT_EQ(program.flows, 0u);
  }
}

TEST(TcpProgramSim, EveryByteArrivesOnceAndInOrder) {
  sim::each_seed(8, [](std::uint64_t seed) {
    TestPrograms world(bad_network(seed));
    Served served(world, world.add(1, {64, 16'384, 32'768}), world.add(0, {64, 16'384, 32'768}), port, 1 + seed * 7919,
                  seed);
    for (int i = 0; i < 12; ++i) served.connect();
    ASSERT_TRUE(world.run_until([&] { return served.done(); }, 3600 * second_ns, [&] { return served.act(); }));
    served.expect_whole();
    expect_nothing_left(world);
  });
}

TEST(TcpProgramSim, RubbishAndDeathCostNobodyElseAnything) {
  sim::each_seed(8, [](std::uint64_t seed) {
    std::mt19937_64 random(seed + 1000);
    TestPrograms world(bad_network(seed));
    Served served(world, world.add(1, {64, 16'384, 32'768}), world.add(0, {64, 16'384, 32'768}), port, 20'000, seed);
    for (int i = 0; i < 6; ++i) served.connect();
    // These two die during their work; the others write arbitrary bytes into their rings and lines.
    Served dying(world, world.add(1, {64, 16'384, 32'768}), world.add(0, {64, 16'384, 32'768}), port + 1, 1 << 20,
                 seed + 1);
    for (int i = 0; i < 6; ++i) dying.connect();
    bool killed = false;
    std::size_t hostile = 0;
    const auto act = [&] {
      if (random() % 64 == 0 && hostile < 40) {
        ++hostile;
        TestProgram& program = world.add(static_cast<std::uint32_t>(random() % 2), {8, 4096, 2048});
        wire::TcpCommand command{};
        for (std::size_t i = 0; i < 1 + random() % 8; ++i) {
          std::array<std::uint64_t, 8> words;
          for (std::uint64_t& word : words) word = random() >> (random() % 64);
          std::memcpy(&command, words.data(), sizeof command);
          // Some of it is valid, so that later code is reached.
          command.kind = static_cast<wire::TcpCommandKind>(random() % 13);
          command.handle = static_cast<std::uint32_t>(random() % 9);
          if (random() % 2 == 0) command.send_bytes = command.receive_bytes = 4096;
          if (random() % 2 == 0) command.send_at = command.receive_at = program.layout.own() + random() % 8192;
          program.write_command(command);
        }
        if (random() % 4 == 0)
          reinterpret_cast<wire::TcpProgramLine*>(program.memory.data())->events_taken = random() >> (random() % 64);
        if (random() % 4 == 0) program.mapped = false;
      }
      if (!killed && dying.others.size() >= 3 && random() % 16 == 0) {
        world.ends[1].service.close(dying.server->number, world.now);
        killed = true;
        dying.others.clear();  // no program acts for it any more
      }
      bool worked = served.act();
      if (!killed) return dying.act() || worked;
      worked |= dying.client->area->take_in();
      for (Talker& each : dying.ones) worked |= each.act();
      return worked;
    };
    const auto done = [&] {
      return served.done() && killed && std::ranges::all_of(dying.ones, [](const Talker& each) { return each.closed; });
    };
    ASSERT_TRUE(world.run_until(done, 3600 * second_ns, act));
    served.expect_whole();
    for (const Talker& each : dying.ones) EXPECT_NE(each.error, wire::TcpError::none);
    world.ends[0].service.close(dying.client->number, world.now);
    for (TestPrograms::End& end : world.ends)
      for (TestProgram& program : end.programs)
        if (program.layout.flows == 8) end.service.close(program.number, world.now);
    expect_nothing_left(world);
    for (const TestPrograms::End& end : world.ends) EXPECT_LE(end.service.programs().size(), 1u);
  });
}

}  // namespace
}  // namespace offpath::tcp
