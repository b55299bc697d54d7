// Agents of several cores over bad networks, by seed: every flow belongs to one core, listeners to one program on all
// cores, and programs that die or write garbage affect no other. OFFPATH_SIM_SEED=K runs one again.
#include <gtest/gtest.h>

#include <optional>

#include "seeds.h"
#include "testing/cpu_time.h"
#include "testing/tcp/cores.h"
#include "wire/areas/flow_steering.h"

namespace offpath::tcp {
namespace {

constexpr std::uint16_t port = 7000;

std::array<std::uint32_t, 2> cores_of(std::uint64_t seed) {
  return {1 + static_cast<std::uint32_t>(seed % 3), 2 + static_cast<std::uint32_t>(seed % 2)};
}

// A server of one program and clients of another, in a world of cores.
struct Service {
  Service(CoreWorld& world_, std::uint64_t bytes_, std::uint64_t seed)
      : world(&world_), server(&world->add(1)), client(&world->add(0)), bytes(bytes_), random(seed) {
    listener = server->area->listen(port, 16).value();
  }
  void connect() {
    const auto handle = client->area->connect({TestNetwork::address(1), port});
    ASSERT_TRUE(handle);
    ones.emplace_back(*client->area, *handle, bytes, true, random());
  }
  bool act() {
    bool worked = client->area->take_in();
    worked = server->area->take_in() || worked;
    for (auto accepted = server->area->accept(listener); accepted; accepted = server->area->accept(listener)) {
      others.emplace_back(*server->area, *accepted, bytes, false, random());
      worked = true;
    }
    for (auto* side : {&ones, &others})
      for (Talker& each : *side) worked = (talk && each.act()) || worked;
    return worked;
  }
  [[nodiscard]] bool done() const {
    const auto closed = [](const Talker& each) { return each.closed; };
    return others.size() == ones.size() && std::ranges::all_of(ones, closed) && std::ranges::all_of(others, closed);
  }
  [[nodiscard]] bool listens() const { return server->area->known(listener)->connected; }

  CoreWorld* world;
  TestProgram *server, *client;
  std::uint64_t bytes;
  bool talk = true;
  std::mt19937_64 random;
  SocketArea::Handle listener;
  std::list<Talker> ones, others;
};

// The command as one that connects to this peer.
void to(wire::TcpCommand& command, const Endpoint& remote) {
  auto connect = std::bit_cast<wire::TcpConnect>(command);
  connect.remote_address = remote.address;
  connect.remote_port = remote.port;
  command = std::bit_cast<wire::TcpCommand>(connect);
}

// All flows of a stack are steered to its core.
void expect_at_home(const CoreWorld& world) {
  for (const auto& side : world.sides) {
    const auto cores = static_cast<std::uint32_t>(side->all.size());
    for (std::uint32_t core = 0; core < cores; ++core)
      for (const auto& each : side->all[core]->service.connections(1000))
        if (!each.listens) {
          ASSERT_EQ(wire::core_of_flow(each.key.local.address, each.key.local.port, each.key.remote.address,
                                       each.key.remote.port, cores),
                    core);
        }
  }
}

void expect_nothing_left(CoreWorld& world) {
  world.run(400 * second_ns);
  for (const auto& side : world.sides) EXPECT_EQ(side->flows(), 0u);
}

TEST(TcpCoresSim, EveryByteArrivesOnceAndInOrderOnEveryCore) {
  sim::each_seed(12, [](std::uint64_t seed) {
    CoreWorld world(bad_network(seed), cores_of(seed));
    Service service(world, 1 + seed * 3989, seed);
    ASSERT_TRUE(world.run_until([&] { return service.listens(); }, second_ns, [&] { return service.act(); }));
    for (int i = 0; i < 24; ++i) service.connect();
    ASSERT_TRUE(world.run_until(
        [&] {
          expect_at_home(world);
          return service.done();
        },
        3600 * second_ns, [&] { return service.act(); }));
    for (const auto* side : {&service.ones, &service.others})
      for (const Talker& each : *side) {
        EXPECT_EQ(each.error, wire::TcpError::none);
        EXPECT_EQ(each.received, service.bytes);
        EXPECT_EQ(each.wrong, 0u);
      }
    for (const auto& side : world.sides)
      for (const auto& core : side->all) {
        EXPECT_GT(core->stack->counters().connected + core->stack->counters().accepted, 0u)
            << "a core had nothing to do";
        EXPECT_EQ(core->stack->counters().refused, 0u);
      }
    expect_nothing_left(world);
  });
}

TEST(TcpCoresSim, APortIsOneProgramsOnAllCores) {
  sim::each_seed(12, [](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    CoreWorld world({.seed = seed}, {1, 3});
    std::array<TestProgram*, 3> programs{&world.add(1), &world.add(1), &world.add(1)};
    std::array<std::optional<SocketArea::Handle>, 3> listeners{};
    std::size_t had = 0;
    for (int round = 0; round < 400; ++round) {
      const std::size_t who = random() % programs.size();
      auto& listener = listeners[who];
      if (!listener) {
        if (const auto made = programs[who]->area->listen(port, 4)) listener = *made;
      } else {
        const auto look = programs[who]->area->look(*listener);
        had += look->connected;
        if (look->closed) {
          EXPECT_EQ(look->error, wire::TcpError::address_in_use);
        }
        if (look->closed || random() % 4 == 0) {
          programs[who]->area->close(*listener);
          listener.reset();
        }
      }
      for (std::uint64_t i = random() % 4; i > 0; --i) world.sides[1]->poll(world.now);
      for (TestProgram* program : programs) program->area->take_in();
      std::size_t listening = 0;
      for (std::size_t i = 0; i < programs.size(); ++i)
        if (listeners[i]) listening += programs[i]->area->known(*listeners[i])->connected;
      ASSERT_LE(listening, 1u);
    }
    EXPECT_GT(had, 10u);
    EXPECT_TRUE(world.sides[1]->ended.empty()) << world.sides[1]->ended.front().why.message;
    for (std::size_t i = 0; i < programs.size(); ++i)
      if (listeners[i]) programs[i]->area->close(*listeners[i]);
    const auto act = [&] {
      bool worked = false;
      for (TestProgram* program : programs) worked = program->area->take_in() || worked;
      return worked;
    };
    world.run_until([] { return false; }, second_ns, act);
    for (const auto& core : world.sides[1]->all)
      for (const auto& each : core->service.programs()) EXPECT_EQ(each.listeners + each.accept_slots, 0u);
  });
}

// Whichever core a connection is steered to.
TEST(TcpCoresSim, AConnectionFromAnotherOnesPortIsRefusedOnEveryCore) {
  sim::each_seed(12, [](std::uint64_t seed) {
    CoreWorld world({.seed = seed}, {1, 3});
    TestProgram &server = world.add(1), &thief = world.add(1);
    const auto listener = server.area->listen(port, 8).value();
    ASSERT_TRUE(world.run_until([&] { return server.area->look(listener)->connected; }, second_ns));
    for (std::uint16_t remote = 9000; remote < 9030; ++remote) {
      const auto flow = thief.area->connect({TestNetwork::address(0), remote}, port).value();
      ASSERT_TRUE(world.run_until([&] { return thief.area->look(flow)->closed; }, second_ns));
      EXPECT_EQ(thief.area->look(flow)->error, wire::TcpError::address_in_use) << remote;
      thief.area->close(flow);
    }
    EXPECT_EQ(world.sides[1]->flows(), 0u);
  });
}

// Another user's listener, and connections from its port: the first has it, for any order of messages between cores.
TEST(TcpCoresSim, APortIsAListenersOrAnotherUsersConnections) {
  std::size_t listened = 0, connected = 0;
  sim::each_seed(24, [&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    CoreWorld world({.seed = seed}, {1, 3});
    TestProgram &server = world.add(1), &other = world.add(1, {64, 16'384, 16'384}, 1001), &peer = world.add(0);
    static_cast<void>(peer.area->listen(9000, 16));
    ASSERT_TRUE(world.run_until(
        [&] { return world.sides[0]->all[0]->stack->listener(test_family(), 9000).has_value(); }, second_ns));
    std::optional<SocketArea::Handle> listener, flow;
    for (int round = 0; round < 300; ++round) {
      auto& which = random() % 2 == 0 ? listener : flow;
      TestProgram& whose = &which == &listener ? server : other;
      const auto open_again = [&] {
        return &which == &listener ? whose.area->listen(port, 4)
                                   : whose.area->connect({TestNetwork::address(0), 9000}, port);
      };
      if (!which) {
        if (const auto made = open_again()) which = *made;
      } else if (whose.area->look(*which)->closed || random() % 8 == 0) {
        whose.area->abort(*which);
        which.reset();
      }
      for (std::uint64_t i = random() % 6; i > 0; --i) world.run(random() % 2 * microsecond_ns + 1);
      const auto is = [](TestProgram& program, std::optional<SocketArea::Handle> handle) {
        return handle && program.area->look(*handle)->connected && !program.area->look(*handle)->closed;
      };
      listened += is(server, listener);
      connected += is(other, flow);
      ASSERT_FALSE(is(server, listener) && is(other, flow)) << round;
    }
    EXPECT_TRUE(world.sides[1]->ended.empty()) << world.sides[1]->ended.front().why.message;
    for (const auto& [program, handle] : {std::pair{&server, listener}, {&other, flow}})
      if (handle) program->area->abort(*handle);
    world.run(second_ns);
    // No state is left for any program.
    const auto again = server.area->listen(port, 4).value();
    EXPECT_TRUE(world.run_until([&] { return server.area->look(again)->connected; }, second_ns));
  });
  EXPECT_GT(listened, 10u);
  EXPECT_GT(connected, 10u);
}

TEST(TcpCoresSim, PeersOnAllCoresSeeTheEndOfAProgramThatDies) {
  sim::each_seed(12, [](std::uint64_t seed) {
    CoreWorld world(bad_network(seed), cores_of(seed));
    Service service(world, 1 << 30, seed);
    ASSERT_TRUE(world.run_until([&] { return service.listens(); }, second_ns, [&] { return service.act(); }));
    for (int i = 0; i < 16; ++i) service.connect();
    service.talk = false;
    ASSERT_TRUE(
        world.run_until([&] { return service.others.size() == 16; }, 100 * second_ns, [&] { return service.act(); }));
    service.talk = true;
    world.run_until([] { return false; }, 20 * millisecond_ns, [&] { return service.act(); });
    for (const auto& core : world.sides[1]->all) EXPECT_GT(core->stack->flows(), 0u);
    world.sides[1]->close(service.server->number, world.now);
    service.others.clear();
    const auto act = [&] {
      bool worked = service.client->area->take_in();
      for (Talker& each : service.ones) worked = each.act() || worked;
      return worked;
    };
    ASSERT_TRUE(world.run_until(
        [&] { return std::ranges::all_of(service.ones, [](const Talker& each) { return each.closed; }); },
        100 * second_ns, act));
    for (const Talker& each : service.ones) EXPECT_NE(each.error, wire::TcpError::none);
    TestProgram& next = world.add(1);  // the port is free on every core
    const auto listener = next.area->listen(port, 4).value();
    ASSERT_TRUE(world.run_until([&] { return next.area->look(listener)->connected; }, second_ns, act));
  });
}

TEST(TcpCoresSim, RubbishOnOneCoreEndsThatProgramOnAll) {
  sim::each_seed(24, [](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    CoreWorld world(bad_network(seed), {1, 3});
    Service service(world, 20'000, seed);
    ASSERT_TRUE(world.run_until([&] { return service.listens(); }, second_ns, [&] { return service.act(); }));
    for (int i = 0; i < 8; ++i) service.connect();
    TestProgram& hostile = world.add(1, {16, 4096, 4096});
    std::size_t written = 0;
    const auto act = [&] {
      if (written < 200 && random() % 8 == 0) {
        ++written;
        const auto core = static_cast<std::uint32_t>(random() % 3);
        wire::TcpCommand command{};
        command.kind = static_cast<wire::TcpCommandKind>(written < 150 ? 1 + random() % 12 : random() % 20);
        command.handle = static_cast<std::uint32_t>(random() % 16);
        command.flags = static_cast<std::uint16_t>(random() % 8 == 0 ? 0 : wire::tcp_families);
        const bool of_port = command.kind == wire::TcpCommandKind::listen || command.kind == wire::TcpCommandKind::bind;
        if (written < 150 && !of_port) command.handle = command.handle / 3 * 3 + core;
        command.listener = static_cast<std::uint32_t>(random() % 4);
        command.port = static_cast<std::uint16_t>(random() % 2 == 0 ? port : 7001 + random() % 4);
        if (command.kind == wire::TcpCommandKind::connect) to(command, {TestNetwork::address(0), 9});
        command.send_bytes = command.receive_bytes = 4096;
        command.send_at = command.receive_at = hostile.layout.own();
        hostile.write_command(command, of_port && written < 150 ? 0 : core);
      }
      return service.act();
    };
    while (written < 200) world.step(world.now + millisecond_ns, act);
    ASSERT_TRUE(world.run_until([&] { return service.done(); }, 3600 * second_ns, act));
    for (const Talker& each : service.ones) EXPECT_EQ(each.error, wire::TcpError::none);
    world.run(10 * second_ns);
    EXPECT_FALSE(world.sides[1]->ended.empty());
    for (const auto& core : world.sides[1]->all) {
      EXPECT_TRUE(core->service.has(service.server->number));
      EXPECT_FALSE(core->service.has(hostile.number));
    }
  });
}

TEST(TcpCores, HaveHandlesOfTheirOwnSoQuotasHold) {
  for (const bool another : {false, true}) {
    CoreWorld world({}, {1, 2});
    TestProgram& program = world.add(1, {16, 4096, 4096});
    wire::TcpCommand command{};
    command.kind = wire::TcpCommandKind::connect;
    command.handle = 3;
    to(command, {TestNetwork::address(0), 80});
    command.send_bytes = command.receive_bytes = 4096;
    command.send_at = command.receive_at = program.layout.own();
    program.write_command(command, another ? 0 : 1);
    world.run(second_ns);
    EXPECT_EQ(world.sides[1]->ended.empty(), !another);
    for (const auto& core : world.sides[1]->all) EXPECT_EQ(core->service.has(program.number), !another);
  }
}

// A listener that lacks accept slots on a core without free handles causes no search through all cells.
TEST(TcpCores, AListenerWithoutHandlesForAcceptSlotsCostsNothing) {
  CoreWorld world({}, {1, 2});
  constexpr std::uint32_t flows = 4096;
  TestProgram& program = world.add(1, {flows, 4096, 4096});
  SocketArea& area = *program.area;
  const auto listener = area.listen(port, 64);
  ASSERT_TRUE(world.run_until([&] { return area.look(*listener)->connected; }, second_ns));
  const auto quickest = [&] {
    return least_cpu_ns([&] {
      for (int i = 0; i < 200; ++i) static_cast<void>(area.take_in());
    });
  };
  const auto before = quickest();
  // All handles of one core are taken, and then an accept slot is used up.
  std::vector<SocketArea::Handle> taken;
  for (std::uint16_t local = 1; taken.size() < flows; ++local) {
    if (wire::core_of_flow(TestNetwork::address(1), local, TestNetwork::address(0), 80, 2) != 1) continue;
    const auto handle = area.connect({TestNetwork::address(0), 80}, local);
    if (!handle && handle.error().code == Error::no_space) break;
    if (handle)
      taken.push_back(*handle);
    else
      world.run(millisecond_ns);
  }
  const auto more = area.listen(port + 1, 64);
  ASSERT_TRUE(more);
  world.run(second_ns);
  static_cast<void>(area.take_in());
  EXPECT_LT(quickest(), 20 * before);  // 4096 cells are some hundred times that
}

TEST(TcpCores, TakeConnectionsFromAPortOfTheProgramsByItsNumbers) {
  CoreWorld world({}, {3, 2});
  Service service(world, 100, 1);
  ASSERT_TRUE(world.run_until([&] { return service.listens(); }, second_ns, [&] { return service.act(); }));
  for (std::uint16_t local = 2000; local < 2012; ++local) {
    const auto handle = service.client->area->connect({TestNetwork::address(1), port}, local);
    ASSERT_TRUE(handle);
    EXPECT_EQ(service.client->area->core_of(*handle),
              wire::core_of_flow(TestNetwork::address(0), local, TestNetwork::address(1), port, 3));
    service.ones.emplace_back(*service.client->area, *handle, 100, true, local);
  }
  ASSERT_TRUE(world.run_until([&] { return service.done(); }, 100 * second_ns, [&] { return service.act(); }));
  EXPECT_TRUE(world.sides[0]->ended.empty());
}

// Some programs, such as iperf3, tell the connections of a peer apart by their order.
TEST(TcpCores, AcceptConnectionsInTheOrderInWhichTheyBegan) {
  for (const bool late : {false, true}) {
    CoreWorld world({}, {1, 2});
    Service service(world, 0, 1);
    ASSERT_TRUE(world.run_until([&] { return service.listens(); }, second_ns, [&] { return service.act(); }));
    TestCores& server = *world.sides[1];
    // Core 1 has answered the first SYN, and sees later segments when all connections exist.
    const auto perhaps_late = [&] {
      if (late && server.all[1]->stack->half_open() > 0) server.late = 1;
      return false;
    };
    SocketArea& client = *service.client->area;
    std::vector<std::uint16_t> begun, accepted;
    std::uint16_t local = 2000;
    for (const std::uint32_t core : {1u, 0u, 0u}) {
      while (wire::core_of_flow(TestNetwork::address(0), ++local, TestNetwork::address(1), port, 2) != core) continue;
      const auto handle = client.connect({TestNetwork::address(1), port}, local);
      ASSERT_TRUE(handle);
      ASSERT_TRUE(world.run_until([&] { return client.look(*handle)->connected; }, second_ns, perhaps_late));
      begun.push_back(local);
      world.run(millisecond_ns);
    }
    EXPECT_EQ(server.all[1]->stack->half_open(), late ? 1u : 0u);
    server.late = TestCores::nobody;
    world.run(millisecond_ns);
    SocketArea& area = *service.server->area;
    for (auto flow = area.accept(service.listener); flow; flow = area.accept(service.listener))
      accepted.push_back(area.known(*flow)->remote.port);
    EXPECT_EQ(accepted, begun) << "late: " << late;
  }
}

TEST(TcpCores, SleepAndWakeEachForItself) {
  CoreWorld world({}, {1, 2});
  TestProgram& program = world.add(1);
  world.run(millisecond_ns);
  std::vector<std::uint32_t> woken;
  SocketArea sleeper(program.memory, {64, 16'384, 16'384}, [&](std::uint32_t core) { woken.push_back(core); }, 0);
  for (const auto& core : world.sides[1]->all) ASSERT_TRUE(core->service.fall_asleep());
  const auto first = sleeper.connect({TestNetwork::address(0), 80}).value();
  EXPECT_EQ(woken, std::vector{sleeper.core_of(first)});
  const auto second = sleeper.connect({TestNetwork::address(0), 80}).value();
  EXPECT_EQ(woken, (std::vector{sleeper.core_of(first), sleeper.core_of(second)}))
      << "connections take the cores in turn";
  EXPECT_NE(sleeper.core_of(first), sleeper.core_of(second));
  ASSERT_TRUE(sleeper.fall_asleep());
  world.run(second_ns);  // both are refused, by either core
  std::size_t wakes = 0;
  for (const auto& core : world.sides[1]->all) wakes += core->service.take_wakes().size();
  EXPECT_GE(wakes, 1u);
  EXPECT_FALSE(sleeper.fall_asleep()) << "there are events";
  EXPECT_TRUE(sleeper.look(first)->closed);
  EXPECT_TRUE(sleeper.look(second)->closed);
}

}  // namespace
}  // namespace offpath::tcp
