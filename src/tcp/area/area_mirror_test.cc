#include "tcp/area/area_mirror.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <span>

#include "testing/tcp/linked_program.h"

namespace offpath::tcp {
namespace {

using wire::TcpCommand;
using wire::TcpCommandKind;
constexpr std::uint16_t port = 8000;
constexpr TimeNs latency = 2 * microsecond_ns;

// A linked client at end 0, a server on its agent's machine at end 1.
class Linked : public testing::Test {
 protected:
  void connect() {
    listener = server.area->listen(port, 4).value();
    near = client().connect(TestPrograms::endpoint(1, port)).value();
    ASSERT_TRUE(world.run_until(
        [&] {
          if (const auto accepted = server.area->accept(listener)) far = *accepted;
          return client().look(near)->connected && far != 0;
        },
        second_ns));
  }
  void rest() {
    world.run(second_ns);
    ASSERT_TRUE(linked.mirror().may_sleep());
  }
  SocketArea& client() { return *linked.program().area; }
  static std::vector<std::byte> bytes_of(std::size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = stream_byte(7, i);
    return bytes;
  }
  // Sends from one side, and receives all of it at the other.
  void carry(SocketArea& from, SocketArea::Handle out, SocketArea& to, SocketArea::Handle in, std::size_t count) {
    const std::vector<std::byte> sent = bytes_of(count);
    std::vector<std::byte> got(count);
    std::size_t posted = 0, received = 0;
    ASSERT_TRUE(world.run_until(
        [&] {
          if (const auto taken = from.send(out, Bytes(sent).subspan(posted))) posted += *taken;
          if (const auto taken = to.receive(in, MutableBytes(got).subspan(received))) received += *taken;
          return received == count;
        },
        60 * second_ns));
    EXPECT_EQ(got, sent);
  }
  void write_stamped(TcpCommand command) {
    command.stamp = wire::tcp_stamp(command, linked.word(wire::tcp_word::commands));
    linked.program().write_command(command);
  }
  // A command of the connection with bytes within.
  void write_within(TcpCommandKind kind, std::uint64_t end, std::size_t count, std::byte fill) {
    wire::TcpOffer entry{};
    entry.kind = kind;
    entry.count = static_cast<std::uint8_t>(count);
    entry.handle = near;
    entry.position = end;
    entry.bytes.fill(fill);
    write_stamped(std::bit_cast<TcpCommand>(entry));
  }
  // The peer's received bytes when nothing happens any more.
  std::vector<std::byte> received() {
    linked.mirror().look(world.now);
    world.run(second_ns);
    std::vector<std::byte> got(4096);
    const auto taken = server.area->receive(far, got);
    got.resize(taken ? *taken : 0);
    return got;
  }
  // The linked program's ring of the connection, which is full of `fill`.
  void fill_ring(std::byte fill) {
    std::vector<std::byte> bytes(65'536, fill);
    std::vector<std::byte> got(bytes.size());
    std::size_t posted = 0, taken = 0;
    ASSERT_TRUE(world.run_until(
        [&] {
          if (const auto some = client().send(near, Bytes(bytes).subspan(posted))) posted += *some;
          if (const auto some = server.area->receive(far, got)) taken += *some;
          return taken == bytes.size();
        },
        second_ns));
  }
  Status after(const TcpCommand& command) {
    linked.program().write_command(command);
    linked.mirror().look(world.now);
    world.run_until([&] { return !linked.status(); }, millisecond_ns);
    return linked.status();
  }

  LinkedPrograms world{TestNetworkOptions{}};
  LinkedProgram& linked = world.add_linked(0, latency, 1);
  TestProgram& server = world.add(1);
  SocketArea::Handle listener = 0, near = 0, far = 0;
};

TEST_F(Linked, ProgramsExchangeBytes) {
  connect();
  for (const std::size_t count : {1u, 64u, 70'000u, 3'000'001u}) {
    carry(client(), near, *server.area, far, count);
    carry(*server.area, far, client(), near, count);
  }
}

TEST_F(Linked, ProgramsLearnTheAgentsAddressesBeforeAnythingElse) {
  EXPECT_TRUE(client().agent().own_address(test_family()).is_unspecified());
  EXPECT_TRUE(world.run_until([&] { return client().agent().own_address(test_family()) == TestNetwork::address(0); },
                              100 * millisecond_ns));
  EXPECT_EQ(client().agent().families(), wire::tcp_for(test_family()));
  EXPECT_EQ(client().agent().congestion(), wire::TcpCongestion::cubic);
  EXPECT_TRUE(client().agent().may_choose(wire::TcpCongestion::new_reno));
  EXPECT_TRUE(client().agent().may_choose(wire::TcpCongestion::new_reno, channel::AgentWords::Rights::of_everybody));
  connect();
  EXPECT_EQ(client().look(near)->local.address, TestNetwork::address(0));
  EXPECT_EQ(client().look(near)->remote.address, TestNetwork::address(1));
}

TEST_F(Linked, NothingCrossesTheLinkWhileTheProgramRests) {
  connect();
  rest();
  const AreaMirrorCounters before = linked.mirror().counters();
  world.run(10 * second_ns);
  EXPECT_EQ(linked.mirror().counters().looks, before.looks);
  EXPECT_EQ(linked.mirror().counters().chains, before.chains);
}

// The message that a process joins goes another way than its commands.
TEST_F(Linked, AProcessThatIsHeardOfLateIsWokenForWhatCameBefore) {
  connect();
  rest();
  const std::uint32_t process = client().add_process().value();
  SocketArea child(linked.program().memory, SocketOptions{64, 65'536, 65'536}, [](std::uint32_t) {}, process);
  const auto own = child.listen(port, 4).value();
  static_cast<void>(child.take_in());  // it was told of its handles
  ASSERT_TRUE(child.fall_asleep());
  linked.mirror().look(world.now);
  rest();
  EXPECT_EQ(linked.word(wire::tcp_word::process_woken(process)), 0u);
  ASSERT_TRUE(world.ends[0].service.add_process(linked.program().number, process));
  rest();
  EXPECT_EQ(linked.word(wire::tcp_word::process_woken(process)), 1u);
  EXPECT_TRUE(child.look(own)->connected);
}

// Its end is told by the channel, and the others read of it in the area.
TEST_F(Linked, AnEndedProcessIsNamedOnceItsEndIsInTheArea) {
  connect();
  rest();
  const std::uint32_t process = client().add_process().value();
  TcpService& service = world.ends[0].service;
  ASSERT_TRUE(service.add_process(linked.program().number, process));
  rest();
  const std::uint64_t woken = linked.word(wire::tcp_word::process_woken(process)),
                      events = linked.word(wire::tcp_word::events);
  ASSERT_TRUE(service.remove_process(linked.program().number, process));
  ASSERT_TRUE(world.run_until([&] { return linked.word(wire::tcp_word::process_woken(process)) != woken; }, second_ns));
  EXPECT_EQ(linked.word(wire::tcp_word::events), events + 1);
  EXPECT_TRUE(client().take_in());
  EXPECT_EQ(client().add_process().value(), process) << "the number is free";
}

TEST_F(Linked, AnEchoTakesFewOperations) {
  connect();
  rest();
  const AreaMirrorCounters before = linked.mirror().counters();
  ASSERT_TRUE(client().send(near, bytes_of(64)));
  std::vector<std::byte> bytes(64);
  ASSERT_TRUE(world.run_until(
      [&] {
        if (server.area->receive(far, bytes)) static_cast<void>(server.area->send(far, bytes));
        return client().receive(near, bytes).has_value();
      },
      second_ns));
  const AreaMirrorCounters& after = linked.mirror().counters();
  EXPECT_EQ(bytes, bytes_of(64));
  EXPECT_EQ(after.fetches, before.fetches) << "the bytes travel within the commands";
  EXPECT_EQ(after.fetched_bytes - before.fetched_bytes, 64u);
  EXPECT_EQ(after.pushed_bytes - before.pushed_bytes, 64u);
  EXPECT_LE(after.chains - before.chains, 2u) << "the acknowledgement may come before the answer";
}

TEST_F(Linked, ASleepingProcessIsWokenAfterItsBytesHaveArrived) {
  connect();
  const auto woken = [&] { return linked.word(wire::tcp_word::process_woken(0)); };
  for (int i = 0; i < 50; ++i) {
    // Before it sleeps, on the way there, or while it sleeps: the answer comes at any of these moments.
    if (i % 3 == 0) rest();
    ASSERT_TRUE(server.area->send(far, bytes_of(10)));
    world.run(i * microsecond_ns / 2);
    const std::uint64_t before = woken();
    const std::size_t wakes = linked.wakes();
    std::vector<std::byte> bytes(10);
    if (!client().fall_asleep()) {
      static_cast<void>(client().take_in());
      ASSERT_TRUE(world.run_until([&] { return client().receive(near, bytes).has_value(); }, second_ns));
      continue;
    }
    ASSERT_TRUE(world.run_until([&] { return linked.wakes() > wakes; }, second_ns)) << i;
    EXPECT_GT(woken(), before);
    client().stay_awake();
    // An earlier event may have woken it.
    ASSERT_TRUE(world.run_until([&] { return client().receive(near, bytes).has_value(); }, second_ns));
  }
}

TEST_F(Linked, AProcessThatWaitsForRoomIsWoken) {
  connect();
  rest();
  // More commands than the ring has slots, without a round of the agent between them.
  SocketArea::Handle last = near;
  const auto fill = [&] {
    for (int i = 0; i < 2'000; ++i) {
      channel::FlowSettings settings;
      settings.user_timeout_ms = static_cast<std::uint32_t>(i + 1);
      client().set_flow_settings(last, settings);
    }
  };
  fill();
  const std::size_t wakes = linked.wakes();
  ASSERT_TRUE(client().fall_asleep());
  EXPECT_TRUE(world.run_until([&] { return linked.wakes() > wakes; }, second_ns));
  client().stay_awake();
  static_cast<void>(client().take_in());
  carry(client(), near, *server.area, far, 1'000);
}

// A program that was killed: it had read all bytes, which no command told, and gave commands that nobody has seen.
TEST_F(Linked, WhatAnEndedProgramLeftIsFetched) {
  connect();
  ASSERT_TRUE(server.area->send(far, bytes_of(100)));
  std::vector<std::byte> bytes(100);
  ASSERT_TRUE(world.run_until([&] { return client().receive(near, bytes).has_value(); }, second_ns));
  rest();
  const auto position = [&] {
    return *reinterpret_cast<const std::uint64_t*>(linked.copy().data() + linked.program().layout.reads() + 8 * near);
  };
  EXPECT_LT(position(), 100u);
  ASSERT_TRUE(client().send(near, bytes_of(70)));  // its wake is the relay's to pass on, and does not come
  linked.mirror().finish();
  ASSERT_TRUE(world.run_until([&] { return linked.mirror().finished(); }, second_ns));
  EXPECT_EQ(position(), 100u);
  bytes.resize(70);
  EXPECT_TRUE(world.run_until([&] { return server.area->receive(far, bytes).has_value(); }, second_ns));
  const AreaMirrorCounters before = linked.mirror().counters();
  world.run(second_ns);
  EXPECT_TRUE(linked.mirror().may_sleep());
  EXPECT_EQ(linked.mirror().counters().looks, before.looks);
}

// The first look may have read the slot before the program wrote it; the second one comes after its position was seen.
TEST_F(Linked, ACommandWithoutItsStampEndsTheProgram) {
  connect();
  rest();
  const std::uint64_t looks = linked.mirror().counters().looks;
  TcpCommand command{};
  command.kind = TcpCommandKind::offer;
  const Status ended = after(command);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, Error::protocol);
  EXPECT_EQ(linked.mirror().counters().looks, looks + 2);
}

TEST_F(Linked, SmallSendsWithoutRoomForTheirBytesArrive) {
  connect();
  rest();
  // More entries than the ring has, without a round of the agent between them.
  std::size_t sent = 0;
  for (int i = 0; i < 300; ++i)
    if (const auto taken = client().send(near, bytes_of(100))) sent += *taken;
  EXPECT_EQ(sent, 30'000u);
  std::vector<std::byte> got(sent);
  std::size_t taken = 0;
  ASSERT_TRUE(world.run_until(
      [&] {
        if (const auto some = server.area->receive(far, MutableBytes(got).subspan(taken))) taken += *some;
        return taken == sent;
      },
      second_ns));
  for (std::size_t i = 0; i < sent; ++i) ASSERT_EQ(got[i], stream_byte(7, i % 100)) << i;
}

// A program that writes values that its own library would not.
TEST_F(Linked, BytesWithinCommandsCountOnlyWithTheOfferThatNamesThem) {
  connect();
  constexpr std::byte in_ring{0x11}, within{0x22};
  fill_ring(in_ring);  // the ring has 0x11 at every position
  std::uint64_t at = 65'536;
  const auto expect = [&](std::size_t count, std::byte what, const char* why) {
    EXPECT_EQ(received(), std::vector<std::byte>(count, what)) << why;
    at += count;
  };
  write_within(TcpCommandKind::offer, at + 30, 30, within);
  expect(30, within, "an offer and its bytes");
  write_within(TcpCommandKind::payload, at + 36, 36, within);
  write_within(TcpCommandKind::offer, at + 40, 4, within);
  expect(40, within, "in two entries");
  write_within(TcpCommandKind::payload, at + 36, 36, within);
  write_within(TcpCommandKind::offer, at + 36, 0, within);
  expect(36, within, "all before the offer");
  write_within(TcpCommandKind::offer, at + 50, 30, within);
  expect(50, in_ring, "the first 20 are in the ring alone");
  write_within(TcpCommandKind::payload, at + 36, 36, within);
  write_within(TcpCommandKind::offer, at + 41, 4, within);
  expect(41, in_ring, "not one behind the other");
  write_within(TcpCommandKind::payload, at + 36, 36, within);
  write_within(TcpCommandKind::offer, at + 20, 0, within);
  expect(20, in_ring, "more than is offered");
  write_within(TcpCommandKind::offer, at + 16, 0, within);
  expect(16, in_ring, "bytes that an earlier offer has passed over");
  for (int i = 1; i <= 4; ++i) write_within(TcpCommandKind::payload, at + 36u * i, 36, within);
  write_within(TcpCommandKind::offer, at + 180, 36, within);
  expect(180, in_ring, "more entries than a small send has");
  write_within(TcpCommandKind::payload, at + 2'000'000, 36, within);
  write_within(TcpCommandKind::offer, at, 36, within);
  expect(0, within, "an offer of bytes that were sent");
  write_within(TcpCommandKind::offer, at + 10, 36, within);
  expect(10, in_ring, "some of them were sent");
  EXPECT_TRUE(linked.status());
}

TEST_F(Linked, BytesWithinACommandBeyondTheRingEndTheProgram) {
  connect();
  rest();
  write_within(TcpCommandKind::offer, 1ull << 40, 36, std::byte{1});
  linked.mirror().look(world.now);
  world.run(millisecond_ns);
  ASSERT_EQ(world.ends[0].ended.size(), 1u);
  EXPECT_EQ(world.ends[0].ended[0].why.code, Error::protocol);
}

// A wake during the write of the flag: it says that the flag is cleared again.
TEST_F(Linked, AWakeForNothingLeavesTheAgentReachable) {
  connect();
  for (int i = 0; i < 400; ++i) {
    if (i == 200) linked.complete_late(10 * latency);
    world.run(i * 100);
    linked.word(wire::tcp_word::agent_asleep) = 0;
    linked.mirror().look(world.now);
    world.run(i % 7 * 500);
    linked.word(wire::tcp_word::agent_asleep) = 0;
    linked.mirror().look(world.now);
    rest();
    ASSERT_EQ(linked.word(wire::tcp_word::agent_asleep), 1u) << i;
  }
  carry(client(), near, *server.area, far, 10);
}

// The write of an earlier flag may complete while that of a later one is on its way: until the program's area has it,
// nobody would wake the agent.
TEST_F(Linked, TheAgentRestsOnlyWhileTheProgramWouldWakeIt) {
  LinkedProgram& slow = world.add_linked(0, 25 * latency, 1);
  slow.complete_late(400 * latency);
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    slow.word(wire::tcp_word::agent_asleep) = 0;  // as the program does before a wake
    slow.mirror().look(world.now);
    for (unsigned steps = random() % 600; steps > 0; --steps) {
      world.run(microsecond_ns);
      ASSERT_TRUE(!slow.mirror().may_sleep() || slow.word(wire::tcp_word::agent_asleep) == 1) << i;
    }
  }
}

TEST_F(Linked, NothingIsFetchedForAConnectionThatTheProgramWasNotToldOf) {
  connect();
  rest();
  const std::uint64_t before = linked.mirror().counters().fetches;
  TcpCommand command{};
  command.kind = TcpCommandKind::accept_slot;
  command.handle = 9;
  command.listener = 8;  // which does not listen
  command.send_at = command.receive_at = linked.program().layout.own();
  command.send_bytes = command.receive_bytes = 1024;
  write_stamped(command);
  TcpCommand offer{};
  offer.kind = TcpCommandKind::offer;
  offer.handle = 9;
  offer.position = 1024;
  write_stamped(offer);
  linked.mirror().look(world.now);
  world.run(second_ns);
  EXPECT_EQ(linked.mirror().counters().fetches, before);
}

// A program that does not wait for the end of a connection before it names its handle again. All chains are under way,
// so the events of the former connection still wait for the link when the mirror takes the next command.
TEST(AreaMirrorAlone, AHandleWhoseEndWasNotWrittenCannotBeginAgain) {
  TestProgram program({4, 4096, 4096});
  reinterpret_cast<wire::TcpAgentLine*>(program.memory.data() + wire::tcp_word::agent_line)->linked = 1;
  program.area->spread();
  std::vector<std::byte> copy(program.layout.bytes);
  AreaMirror mirror(program.layout, copy);
  TimeNs now = second_ns;
  std::uint64_t events = 0, commands = 0;
  const auto tell = [&](std::uint32_t handle, std::uint8_t what) {
    wire::TcpEvent told{};
    told.handle = handle;
    told.what = what;
    std::memcpy(copy.data() + program.layout.events() + events % program.layout.event_slots * 64, &told, sizeof told);
    ++events;
    std::memcpy(copy.data() + wire::tcp_word::events, &events, sizeof events);
  };
  const auto begin = [&] {
    TcpCommand command{};
    command.kind = TcpCommandKind::connect;
    command.handle = 2;
    command.send_at = program.layout.own();
    command.receive_at = program.layout.own() + 4096;
    command.send_bytes = command.receive_bytes = 4096;
    command.stamp = wire::tcp_stamp(command, commands++);
    program.write_command(command);
  };
  std::vector<AreaMirror::Transfer> writes;
  const auto look = [&]() -> Status {
    now += millisecond_ns;
    mirror.look(now);
    mirror.poll(now);
    for (AreaMirror::Transfer& each : mirror.transfers()) {
      if (each.writes) {
        writes.push_back(std::move(each));
        continue;
      }
      for (const AreaMirror::Piece& piece : each.pieces)
        std::memcpy(piece.memory, program.memory.data() + piece.offset, piece.length);
      OFP_TRY(mirror.done(each.token, now));
    }
    return {};
  };
  begin();
  ASSERT_TRUE(look());
  for (std::size_t i = 0; i < AreaMirror::chains_max; ++i) {
    tell(3, wire::tcp_event::listening);
    ASSERT_TRUE(look());
  }
  ASSERT_EQ(writes.size(), AreaMirror::chains_max);
  tell(2, wire::tcp_event::connected);
  tell(2, wire::tcp_event::closed | wire::tcp_event::gone);
  begin();
  const Status began = look();
  ASSERT_FALSE(began) << "and bytes would be fetched for a connection that nobody was charged for";
  EXPECT_EQ(began.error().code, Error::protocol);
  EXPECT_NE(began.error().message.find("handle 2"), std::string::npos) << began.error().message;
}

TEST_F(Linked, InvalidPlacesEndTheProgram) {
  connect();
  rest();
  TcpCommand command{};
  command.kind = TcpCommandKind::connect;
  command.handle = 9;
  command.send_at = linked.program().layout.bytes - 512;
  command.send_bytes = command.receive_bytes = 1024;
  command.receive_at = linked.program().layout.own();
  const std::uint64_t position = linked.word(wire::tcp_word::commands);
  command.stamp = wire::tcp_stamp(command, position);
  const Status ended = after(command);
  ASSERT_FALSE(ended);
  EXPECT_NE(ended.error().message.find("outside the area"), std::string::npos) << ended.error().message;
}

TEST_F(Linked, APositionBeyondTheRingEndsTheProgram) {
  connect();
  rest();
  linked.word(wire::tcp_word::commands) += linked.program().layout.command_slots + 1;
  linked.mirror().look(world.now);
  world.run_until([&] { return !linked.status(); }, millisecond_ns);
  EXPECT_EQ(linked.status().error().code, Error::protocol);
}

TEST_F(Linked, EventsThatWereNotWrittenToTheProgramCannotBeTaken) {
  connect();
  rest();
  linked.word(wire::tcp_word::events_taken) = linked.word(wire::tcp_word::events);
  linked.mirror().look(world.now);
  rest();
  ASSERT_TRUE(linked.status());
  ++linked.word(wire::tcp_word::events_taken);
  linked.mirror().look(world.now);
  world.run_until([&] { return !linked.status(); }, millisecond_ns);
  ASSERT_FALSE(linked.status());
  EXPECT_EQ(linked.status().error().code, Error::protocol);
}

// As a program can have it that does not take its events: they are merged, and the stream goes on as it allows more.
TEST(AreaMirrorAlone, PushesNoMoreThanTheRingHasRoomForInOneEvent) {
  TestProgram program({4, 4096, 4096});
  reinterpret_cast<wire::TcpAgentLine*>(program.memory.data() + wire::tcp_word::agent_line)->linked = 1;
  program.area->spread();
  const SocketArea::Handle handle = program.area->connect({test_address(0x0a000001), 80}).value();
  std::vector<std::byte> copy(program.layout.bytes);
  AreaMirror mirror(program.layout, copy);
  TimeNs now = second_ns;
  mirror.look(now);
  const auto carry = [&] {
    std::vector<AreaMirror::Piece> written;
    mirror.poll(now);
    for (const AreaMirror::Transfer& each : mirror.transfers()) {
      for (const AreaMirror::Piece& piece : each.pieces) {
        if (each.writes)
          written.push_back(piece);
        else
          std::memcpy(piece.memory, program.memory.data() + piece.offset, piece.length);
      }
      EXPECT_TRUE(mirror.done(each.token, now));
    }
    return written;
  };
  static_cast<void>(carry());
  wire::TcpEvent told{};
  told.handle = handle;
  told.what = wire::tcp_event::connected | wire::tcp_event::received;
  told.received = 3 * 4096 + 100;
  std::memcpy(copy.data() + program.layout.events(), &told, sizeof told);
  const std::uint64_t events = 1;
  std::memcpy(copy.data() + wire::tcp_word::events, &events, sizeof events);
  std::uint64_t payload = 0;
  for (const AreaMirror::Piece& piece : carry())
    if (piece.offset >= program.layout.own()) {
      payload += piece.length;
      EXPECT_LE(piece.offset + piece.length, program.layout.bytes);
    }
  EXPECT_EQ(payload, 4096u);
}

// A program that looks without end takes events, gives no command, and never says that it sleeps.
TEST_F(Linked, EventsGoOnAsTheyAreTakenWithoutACommand) {
  connect();
  const std::uint32_t count = linked.program().layout.event_slots + 100;
  const std::uint64_t commands = linked.word(wire::tcp_word::commands);
  for (std::uint32_t i = 0; i < count; ++i) {
    ASSERT_EQ(server.area->send(far, bytes_of(1)).value(), 1u);
    world.run(millisecond_ns);
    if (i % 200 == 0) client().take_in();
  }
  world.run(second_ns);
  client().take_in();
  EXPECT_EQ(client().look(near)->unread, count);
  EXPECT_EQ(linked.word(wire::tcp_word::commands), commands);
  // Changes while the ring is full are told when there is room.
  for (std::uint32_t i = 0; i < count; ++i) {
    ASSERT_EQ(server.area->send(far, bytes_of(1)).value(), 1u);
    world.run(millisecond_ns);
  }
  client().take_in();
  world.run(second_ns);
  EXPECT_EQ(client().look(near)->unread, 2 * count);
  EXPECT_EQ(linked.word(wire::tcp_word::commands), commands);
}

TEST_F(Linked, BytesOfSmallSendsTravelWithinTheirCommands) {
  connect();
  const std::uint64_t before = linked.mirror().counters().fetches;
  for (const std::size_t count : {1u, 36u, 37u, 72u, 73u, 144u}) carry(client(), near, *server.area, far, count);
  EXPECT_EQ(linked.mirror().counters().fetches, before);
  carry(client(), near, *server.area, far, 145);
  EXPECT_EQ(linked.mirror().counters().fetches, before + 1);
}

TEST_F(Linked, MoreBytesThanACommandHasRoomForEndTheProgram) {
  connect();
  rest();
  wire::TcpOffer offer{};
  offer.kind = TcpCommandKind::offer;
  offer.handle = near;
  offer.count = wire::tcp_entry_payload + 1;
  offer.position = offer.count;
  auto command = std::bit_cast<TcpCommand>(offer);
  command.stamp = wire::tcp_stamp(command, linked.word(wire::tcp_word::commands));
  const Status ended = after(command);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, Error::protocol);
}

// Bytes of another connection, of another place in the stream, or more than were offered: the ring decides which bytes
// are sent.
TEST_F(Linked, BytesThatDoNotFitTheOfferAreTakenFromTheRing) {
  connect();
  rest();
  const std::uint64_t fetches = linked.mirror().counters().fetches;
  const auto post = [&](TcpCommandKind kind, std::uint32_t handle, std::uint64_t position, std::uint8_t count) {
    wire::TcpOffer entry{};
    entry.kind = kind;
    entry.handle = handle;
    entry.position = position;
    entry.count = count;
    entry.bytes.fill(std::byte{0xee});
    auto command = std::bit_cast<TcpCommand>(entry);
    command.stamp = wire::tcp_stamp(command, linked.word(wire::tcp_word::commands));
    linked.program().write_command(command);
  };
  post(TcpCommandKind::payload, near + 1, 36, 36);
  post(TcpCommandKind::offer, near, 40, 4);
  post(TcpCommandKind::payload, near, 90, 36);
  post(TcpCommandKind::offer, near, 100, 10);
  post(TcpCommandKind::payload, near, 136, 36);
  post(TcpCommandKind::payload, near, 172, 36);
  post(TcpCommandKind::offer, near, 172, 0);
  linked.mirror().look(world.now);
  world.run(second_ns);
  EXPECT_TRUE(linked.status());
  EXPECT_GT(linked.mirror().counters().fetches, fetches);
  std::vector<std::byte> bytes(172);
  std::size_t received = 0;
  while (received < bytes.size()) {
    const auto count = server.area->receive(far, std::span(bytes).subspan(received));
    ASSERT_TRUE(count) << received;
    received += *count;
  }
  const auto given = [&](std::size_t from, std::size_t to) {
    return std::count(bytes.begin() + static_cast<std::ptrdiff_t>(from),
                      bytes.begin() + static_cast<std::ptrdiff_t>(to), std::byte{0xee});
  };
  EXPECT_EQ(given(0, 100), 0);
  EXPECT_EQ(given(100, 172), 72);
}

}  // namespace
}  // namespace offpath::tcp
