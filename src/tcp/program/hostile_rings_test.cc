// Rings that hostile programs name in the place of theirs.
#include <sys/mman.h>

#include "testing/tcp/growing_rings.h"
#include "testing/tcp/two_programs.h"

namespace offpath::tcp {
namespace {

using wire::TcpCommand;
using wire::TcpCommandKind;
using wire::TcpWay;
namespace tcp_ring = wire::tcp_ring;

// A client that answers no advice by itself, and has been given one for each direction.
class HostileRings : public testing::Test {
 protected:
  HostileRings() {
    listener = server.area->listen(port, 4).value();
    world.run(second_ns);
    near = client.area->connect(TestPrograms::endpoint(1, port)).value();
    kept = other.area->connect(TestPrograms::endpoint(1, port)).value();
    world.run(second_ns);
    flows = {server.area->accept(listener).value(), server.area->accept(listener).value()};
    std::vector<std::byte> bytes(10'000);
    const TimeNs until = world.now + 100 * millisecond_ns;
    world.run_until([&] { return world.now >= until; }, second_ns,
                    [&] {
                      bool worked = server.area->take_in();
                      worked |= client.area->take_in();
                      for (const auto flow : flows) {
                        while (server.area->receive(flow, bytes)) worked = true;
                        if (sent < 200'000)
                          if (const auto taken = server.area->send(flow, bytes)) worked = true;
                      }
                      if (sent < 200'000)
                        if (const auto taken = client.area->send(near, bytes)) sent += *taken;
                      while (const auto taken = client.area->receive(near, bytes)) {
                        read += *taken;
                        worked = true;
                      }
                      return worked;
                    });
    world.run(second_ns);
    while (const auto taken = client.area->receive(near, bytes)) read += *taken;
    world.run(second_ns);
  }
  TcpCommand good(TcpWay way) const {
    TcpCommand command{};
    command.kind = TcpCommandKind::replace;
    command.handle = near;
    command.flags = static_cast<std::uint16_t>(way);
    command.position = way == TcpWay::out ? sent : read + first_bytes;
    command.receive_at = client.layout.bytes - (256 << 10) - (way == TcpWay::out ? 0 : 64 << 10);
    command.receive_bytes = 64 << 10;
    return command;
  }
  TcpCommand about(TcpCommandKind kind, std::uint64_t position = 0) const {
    TcpCommand command{};
    command.kind = kind;
    command.handle = near;
    command.position = position;
    return command;
  }
  // Why the agent ended the program for it; empty: it did not.
  std::string ends(const TcpCommand& command) {
    client.write_command(command);
    world.run(100 * millisecond_ns);
    return world.ends[0].ended.empty() ? "" : world.ends[0].ended[0].why.message;
  }
  // Of the client's connection, even if it has not read everything.
  std::uint64_t received() const {
    for (const auto& each : world.ends[0].service.connections(8))
      if (each.program == client.number) return each.received;
    return 0;
  }
  TcpCommand first(TcpWay way) const {
    TcpCommand command = good(way);
    command.position = way == TcpWay::out ? sent : read;
    const std::uint64_t rings = client.layout.bytes - 64 * 2 * first_bytes;
    command.receive_at = rings + near * 2 * first_bytes + (way == TcpWay::out ? 0 : first_bytes);
    command.receive_bytes = first_bytes;
    return command;
  }
  // Another connection of the client fills the ring of its events.
  void fill_events() {
    const auto busy = client.area->connect(TestPrograms::endpoint(1, port)).value();
    world.run(second_ns);
    client.area->take_in();
    server.area->take_in();
    const auto flow = server.area->accept(listener).value();
    const std::byte one{1};
    const auto posted = [&] {
      return *reinterpret_cast<const std::uint64_t*>(client.memory.data() + wire::tcp_word::events);
    };
    const std::uint64_t end = posted() + client.layout.event_slots;
    for (std::uint32_t i = 0; i < 4 * client.layout.event_slots && posted() != end; ++i) {
      ASSERT_TRUE(server.area->send(flow, Bytes(&one, 1)));
      world.run(50 * millisecond_ns);
      server.area->take_in();
    }
    ASSERT_NE(busy, near);
    ASSERT_EQ(posted(), end);
  }
  void expect_others_unharmed(std::size_t programs = 1) {
    world.run(second_ns);
    EXPECT_TRUE(other.area->look(kept)->connected);
    EXPECT_EQ(world.ends[0].service.programs().size(), programs);
  }

  TestPrograms world{path(20 * millisecond_ns)};
  // Handles that nobody uses: their rings are memory that a program may name.
  TestProgram &client = world.add(0, {64, first_bytes, first_bytes}), &other = world.add(0), &server = world.add(1);
  SocketArea::Handle near = 0, kept = 0, listener = 0;
  std::vector<SocketArea::Handle> flows{};
  std::uint64_t sent = 0, read = 0;
};

TEST_F(HostileRings, AreTakenIfTheyAreGood) {
  ASSERT_GT(sent, first_bytes) << "the first ring went round";
  for (const TcpWay way : {TcpWay::out, TcpWay::in}) EXPECT_EQ(ends(good(way)), "");
  EXPECT_EQ(world.ends[0].service.counters().rings_grown, 2u);
}

TEST_F(HostileRings, AreRefusedWithoutAnAdvice) {
  EXPECT_EQ(ends(good(TcpWay::out)), "");
  TcpCommand again = good(TcpWay::out);
  again.receive_at = client.layout.bytes - (1 << 20);
  again.receive_bytes = 256 << 10;
  EXPECT_EQ(ends(again), "");
  EXPECT_EQ(world.ends[0].service.counters().rings_grown, 1u);
  EXPECT_EQ(world.ends[0].service.programs()[0].lent_bytes, 64u << 10);
  expect_others_unharmed(2);
}

TEST_F(HostileRings, EndTheirProgramIfTheyOverlap) {
  EXPECT_EQ(ends(good(TcpWay::out)), "");
  TcpCommand over = good(TcpWay::in);
  over.receive_at = good(TcpWay::out).receive_at + wire::tcp_ring_block_bytes;
  over.receive_bytes = 32 << 10;
  EXPECT_NE(ends(over).find("where another one is"), std::string::npos);
  expect_others_unharmed();
}

// On its own machine the agent does not charge a first ring for sending, but no larger ring may lie over it.
TEST_F(HostileRings, EndTheirProgramOverAFirstRingForSending) {
  TcpCommand over = good(TcpWay::in);
  over.receive_at = client.layout.bytes - 64 * 2 * first_bytes - (48 << 10);  // ends with the first ring of handle 0
  ASSERT_EQ(near, 0u);
  EXPECT_NE(ends(over).find("where another one is"), std::string::npos);
  expect_others_unharmed();
}

TEST_F(HostileRings, EndTheirProgramUnderAFirstRing) {
  const TcpCommand larger = good(TcpWay::out);
  EXPECT_EQ(ends(larger), "");
  TcpCommand first = about(TcpCommandKind::connect);
  first.handle = near + 1;
  first.receive_at = larger.receive_at;
  first.send_at = larger.receive_at - first_bytes;
  first.send_bytes = first.receive_bytes = first_bytes;
  EXPECT_NE(ends(first).find("where a larger one is"), std::string::npos);
  expect_others_unharmed();
}

// A program can make the agent wait for the lock of its file: only the program removes pages, and until it ends it is
// charged for memory that the agent may have written to.
TEST_F(HostileRings, StayChargedAndAreNotTouchedOnceTheyAreReturned) {
  const TcpCommand larger = good(TcpWay::in);
  EXPECT_EQ(ends(larger), "");
  const auto status = [&] { return world.ends[0].service.programs()[0]; };
  const std::uint64_t charged = status().receive_bytes;
  EXPECT_EQ(status().lent_bytes, 64u << 10);
  client.memory[larger.receive_at + 5000] = std::byte{7};
  EXPECT_EQ(ends(about(TcpCommandKind::abort)), "");
  EXPECT_EQ(status().lent_bytes, 0u);
  EXPECT_EQ(status().receive_bytes, charged);
  EXPECT_EQ(client.memory[larger.receive_at + 5000], std::byte{7});
}

// The event `gone` finds no room, and the program allows as much as it has read meanwhile.
TEST_F(HostileRings, ServeUntilTheProgramIsToldThatTheyAreGone) {
  fill_events();
  EXPECT_EQ(ends(good(TcpWay::in)), "");
  EXPECT_EQ(ends(about(TcpCommandKind::abort)), "");
  EXPECT_EQ(ends(about(TcpCommandKind::allow, read + (64 << 10))), "");
  EXPECT_EQ(world.ends[0].service.programs()[0].lent_bytes, 0u);
}

// The same, and the program leaves its larger rings meanwhile.
TEST_F(HostileRings, AreNotLeftUntilTheProgramIsToldThatTheyAreGone) {
  fill_events();
  for (const TcpWay way : {TcpWay::out, TcpWay::in}) EXPECT_EQ(ends(good(way)), "");
  EXPECT_EQ(ends(about(TcpCommandKind::abort)), "");
  EXPECT_EQ(world.ends[0].service.programs()[0].lent_bytes, 0u);
  for (const TcpWay way : {TcpWay::out, TcpWay::in}) EXPECT_EQ(ends(first(way)), "");
}

// ---- hostile programs, whose flow has a larger ring

class HostileFirstRings : public HostileRings {
 protected:
  HostileFirstRings() {
    for (const TcpWay way : {TcpWay::out, TcpWay::in}) EXPECT_EQ(ends(good(way)), "");
    // More comes than the first ring has room for, so that it is free.
    static_cast<void>(server.area->send(flows[0], std::vector<std::byte>(30'000)));
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(ends(about(TcpCommandKind::allow, received() + (64 << 10))), "");
      world.run(second_ns);
    }
    EXPECT_GT(received(), read + first_bytes);
    read = received();
  }
  std::string shut() { return ends(about(TcpCommandKind::shut)); }
  std::uint64_t lent() const { return world.ends[0].service.programs()[0].lent_bytes; }
};

TEST_F(HostileFirstRings, AreTakenIfTheLargerOnesAreEmpty) {
  EXPECT_EQ(lent(), 128u << 10);
  EXPECT_EQ(ends(first(TcpWay::out)), "");
  EXPECT_EQ(lent(), 64u << 10);
  EXPECT_EQ(shut(), "");
  EXPECT_EQ(ends(first(TcpWay::in)), "");
  EXPECT_EQ(lent(), 0u);
  EXPECT_EQ(world.ends[0].service.counters().rings_shrunk, 2u);
  EXPECT_EQ(ends(about(TcpCommandKind::allow, read + first_bytes)), "");
  EXPECT_NE(ends(about(TcpCommandKind::allow, read + first_bytes + 1)).find("its ring has 16384"), std::string::npos);
}

// Bytes that go into the larger ring have not come, and those before it have been read.
TEST_F(HostileRings, FirstOnesAreTakenBeforeTheLargerOnesAreInUse) {
  EXPECT_EQ(ends(good(TcpWay::in)), "");
  EXPECT_EQ(world.ends[0].service.programs()[0].lent_bytes, 64u << 10);
  EXPECT_EQ(ends(about(TcpCommandKind::shut)), "");
  TcpCommand command = good(TcpWay::in);
  command.position = received();
  command.receive_at = client.layout.bytes - (64 - near) * 2 * first_bytes + first_bytes;
  command.receive_bytes = first_bytes;
  EXPECT_EQ(ends(command), "");
  EXPECT_EQ(world.ends[0].service.programs()[0].lent_bytes, 0u);
  EXPECT_EQ(world.ends[0].service.counters().rings_shrunk, 1u);
  expect_others_unharmed(2);
}

TEST_F(HostileFirstRings, EndTheirProgramWhileTheWindowIsOpen) {
  EXPECT_NE(ends(first(TcpWay::in)).find("is in use"), std::string::npos);
  expect_others_unharmed();
}

TEST_F(HostileFirstRings, EndTheirProgramOnceTheWindowIsOpenAgain) {
  EXPECT_EQ(shut(), "");
  EXPECT_EQ(ends(about(TcpCommandKind::allow, read + 1024)), "");
  EXPECT_NE(ends(first(TcpWay::in)).find("is in use"), std::string::npos);
  expect_others_unharmed();
}

TEST_F(HostileFirstRings, EndTheirProgramWithBytesUnacknowledged) {
  Impairments gone;
  gone.loss = 1;
  world.ends[0].port->set(gone, gone);
  EXPECT_EQ(ends(about(TcpCommandKind::offer, sent + 10)), "");
  TcpCommand command = first(TcpWay::out);
  command.position += 10;
  EXPECT_NE(ends(command).find("is in use"), std::string::npos);
  world.ends[0].port->set({}, {});
  expect_others_unharmed();
}

TEST_F(HostileFirstRings, EndTheirProgramAtAnotherPosition) {
  TcpCommand command = first(TcpWay::out);
  --command.position;
  EXPECT_NE(ends(command).find("is in use"), std::string::npos);
  expect_others_unharmed();
}

// Another flow's ring, a part of the larger one, or a larger first one.
TEST_F(HostileFirstRings, EndTheirProgramIfTheyAreOthers) {
  TcpCommand command = first(TcpWay::out);
  command.receive_at += 2 * first_bytes;
  EXPECT_NE(ends(command).find("after one of 65536 bytes"), std::string::npos);
  expect_others_unharmed();
}
TEST_F(HostileFirstRings, EndTheirProgramInTheLargerOne) {
  TcpCommand command = first(TcpWay::out);
  command.receive_at = good(TcpWay::out).receive_at;
  EXPECT_NE(ends(command).find("after one of 65536 bytes"), std::string::npos);
  expect_others_unharmed();
}
TEST_F(HostileFirstRings, EndTheirProgramWithAnotherSize) {
  TcpCommand command = first(TcpWay::out);
  command.receive_bytes *= 2;
  EXPECT_NE(ends(command).find("after one of 65536 bytes"), std::string::npos);
  expect_others_unharmed();
}

// It keeps its larger rings, its window stays shut, or it says all of it again and again: other flows are not
// concerned, and no more memory is lent than it had.
TEST_F(HostileFirstRings, StayItsOwnAffair) {
  EXPECT_EQ(shut(), "");
  EXPECT_EQ(ends(first(TcpWay::in)), "");
  for (int i = 0; i < 100; ++i) EXPECT_EQ(shut(), "");
  EXPECT_EQ(lent(), 64u << 10);
  const std::byte one{1};
  ASSERT_TRUE(server.area->send(flows[0], Bytes(&one, 1)));
  world.run(10 * second_ns);
  EXPECT_EQ(ends(about(TcpCommandKind::abort)), "");
  EXPECT_EQ(lent(), 0u);
  expect_others_unharmed(2);
}

// The connection has ended, and the program does not know it yet.
TEST_F(HostileFirstRings, AreRefusedOnceTheConnectionIsGone) {
  EXPECT_EQ(shut(), "");
  client.write_command(about(TcpCommandKind::abort));
  client.write_command(first(TcpWay::out));
  EXPECT_EQ(ends(first(TcpWay::in)), "");
  EXPECT_EQ(lent(), 0u);
  expect_others_unharmed(2);
}

class HostileRing : public HostileRings, public testing::WithParamInterface<int> {};

TEST_P(HostileRing, EndsItsProgramAndNoOther) {
  const TcpWay way = GetParam() % 2 == 0 ? TcpWay::out : TcpWay::in;
  TcpCommand command = good(way);
  std::string why = "outside the area";
  switch (GetParam() / 2) {
    case 0:
      command.receive_at = client.layout.bytes - (32 << 10);
      break;
    case 1:
      command.receive_at = ~0ull - (16 << 10) + 1;
      break;
    case 2:
      command.receive_at = 0;  // over the commands
      break;
    case 3:
      command.receive_at -= 4096;  // in the middle of a block
      why = "after one of 16384 bytes";
      break;
    case 4:
      command.receive_bytes = 48 << 10;
      why = "powers of two";
      break;
    case 5:
      command.receive_bytes = first_bytes;  // no larger
      why = "after one of 16384 bytes";
      break;
    case 6:
      command.receive_bytes = 8 << 20;
      why = "powers of two from 1024 to 4194304";
      break;
    case 7:
      command.position += way == TcpWay::out ? 1 : 1 << 20;
      why = "a larger ring from byte";
      break;
    case 8:
      command.position -= 1;
      why = "a larger ring from byte";
      break;
    case 9:
      command.position = ~0ull;
      why = "a larger ring from byte";
      break;
    case 10:
      command.flags = 2;
      why = "for direction 2";
      break;
    case 11:
      command.handle = near + 1;  // no connection
      ASSERT_EQ(ends(command), "");
      EXPECT_EQ(world.ends[0].service.counters().rings_grown, 0u);
      return;
    default:
      break;
  }
  const std::string said = ends(command);
  EXPECT_NE(said.find(why), std::string::npos) << said;
  expect_others_unharmed();
}
INSTANTIATE_TEST_SUITE_P(Each, HostileRing, testing::Range(0, 24));

}  // namespace
}  // namespace offpath::tcp
