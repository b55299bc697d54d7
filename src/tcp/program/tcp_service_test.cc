#include "tcp/program/tcp_service.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing/tcp/two_programs.h"

namespace offpath::tcp {
namespace {

using wire::TcpCommand;
using wire::TcpCommandKind;
using wire::TcpError;

using Programs = TwoPrograms;

TEST_F(Programs, ExchangeBytesAndGiveEverythingBack) {
  const auto accept_slots = [&] { return world.ends[1].service.programs()[0].accept_slots; };
  for (const std::uint64_t bytes : {0ull, 1ull, 64ull, 65'536ull, 3'000'001ull}) {
    if (bytes == 0)
      connect();
    else
      near = client.area->connect(TestPrograms::endpoint(1, port)).value();
    Talker one(*client.area, near, bytes, true, bytes);
    std::optional<Talker> two;
    if (bytes == 0) two.emplace(*server.area, far, bytes, false, bytes + 1);
    const auto act = [&] {
      if (!two && accept()) two.emplace(*server.area, far, bytes, false, bytes + 1);
      const bool first = one.act(), second = two && two->act();  // both get their turn
      return first || second;
    };
    ASSERT_TRUE(world.run_until([&] { return one.closed && two && two->closed; }, 60 * second_ns, act)) << bytes;
    EXPECT_EQ(one.received, bytes);
    EXPECT_EQ(two->received, bytes);
    EXPECT_EQ(one.wrong + two->wrong, 0u);
    EXPECT_EQ(one.error, TcpError::none);
  }
  world.run(200 * second_ns);
  EXPECT_EQ(world.ends[0].service.programs()[0].flows, 0u);
  EXPECT_EQ(world.ends[1].service.programs()[0].flows, 0u);
  EXPECT_EQ(accept_slots(), 4u);
  EXPECT_EQ(world.ends[0].stack->flows() + world.ends[1].stack->flows(), 0u);
  server.area->close(listener);
  world.run(second_ns);
  EXPECT_EQ(accept_slots(), 0u);
  EXPECT_EQ(world.ends[1].service.programs()[0].listeners, 0u);
}

TEST_F(Programs, AreToldWhatIsWrongWithAConnection) {
  const auto error_of = [&](Result<SocketArea::Handle> handle) {
    EXPECT_TRUE(world.run_until([&] { return client.area->look(*handle)->error != TcpError::none; }, 200 * second_ns));
    const TcpError error = client.area->look(*handle)->error;
    client.area->close(*handle);
    return error;
  };
  EXPECT_EQ(error_of(client.area->connect(TestPrograms::endpoint(1, port))), TcpError::refused);
  EXPECT_EQ(error_of(client.area->connect({0x0b000001, port})), TcpError::unreachable);
  EXPECT_EQ(error_of(client.area->connect(TestPrograms::endpoint(1, port), 80)), TcpError::denied);
  EXPECT_EQ(error_of(client.area->listen(1023, 1)), TcpError::denied);
  const auto first = client.area->listen(port, 1);
  EXPECT_EQ(error_of(client.area->listen(port, 8)), TcpError::address_in_use);
  world.run(second_ns);
  EXPECT_TRUE(client.area->look(*first)->connected);
  EXPECT_EQ(world.ends[0].service.programs()[0].accept_slots, 1u);
  EXPECT_EQ(world.ends[0].service.programs()[0].flows, 0u);
}

// A connection from a port that somebody listens on would take that listener's peer away: both sides would have begun
// at once.
TEST_F(Programs, DoNotConnectFromAPortThatAnotherOneListensOn) {
  TestProgram& thief = world.add(1);
  listener = server.area->listen(port, 4).value();
  world.run(second_ns);
  const auto taken = thief.area->connect(TestPrograms::endpoint(0, 9000), port).value();
  world.run(millisecond_ns);
  EXPECT_EQ(thief.area->look(taken)->error, TcpError::address_in_use);
  EXPECT_EQ(world.ends[1].stack->flows(), 0u);
  // A program's own port is allowed: a program that listens on and connects from one port reaches peers that do the
  // same (RFC 5382).
  static_cast<void>(client.area->listen(9000, 1));
  const auto own = server.area->connect(TestPrograms::endpoint(0, 9000), port).value();
  EXPECT_TRUE(world.run_until([&] { return server.area->look(own)->connected; }, second_ns));
}

// Otherwise an existing connection would get the peers that want the listener.
TEST_F(Programs, DoNotListenOnAPortThatAnotherUserConnectsFrom) {
  TestProgram &other = world.add(1, {64, 65'536, 65'536}, {1001, false}), &friendly = world.add(1);
  static_cast<void>(client.area->listen(9000, 8));
  const auto held = other.area->connect(TestPrograms::endpoint(0, 9000), port).value();
  const auto by_one_of_its_own = friendly.area->connect(TestPrograms::endpoint(0, 9000), port + 1).value();
  ASSERT_TRUE(world.run_until(
      [&] { return other.area->look(held)->connected && friendly.area->look(by_one_of_its_own)->connected; },
      second_ns));
  const auto listen = [&](std::uint16_t on) {
    const auto made = server.area->listen(on, 4).value();
    world.run(millisecond_ns);
    const TcpError error = server.area->look(made)->error;
    server.area->close(made);
    world.run(millisecond_ns);
    return error;
  };
  EXPECT_EQ(listen(port), TcpError::address_in_use);
  EXPECT_EQ(listen(port + 1), TcpError::none);
  other.area->abort(held);
  world.run(millisecond_ns);
  EXPECT_EQ(listen(port), TcpError::none);
}

TEST_F(Programs, WaitNoLongerThanTheirTimeout) {
  connect();
  client.area->set_flow_settings(near, {.user_timeout_ms = 3000});
  std::vector<std::byte> much(65'536);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(client.area->send(near, much));
    world.run(second_ns);
  }
  EXPECT_EQ(client.area->look(near)->error, TcpError::none);
  EXPECT_TRUE(world.run_until([&] { return client.area->look(near)->error == TcpError::timed_out; }, 4 * second_ns));
}

TEST_F(Programs, WhatIsKnownTakesNothingIn) {
  const auto handle = client.area->listen(port, 1);
  ASSERT_TRUE(handle);
  world.run(second_ns);
  EXPECT_FALSE(client.area->known(*handle)->connected);
  EXPECT_TRUE(client.area->has_events());
  client.area->take_in();
  EXPECT_TRUE(client.area->known(*handle)->connected);
  EXPECT_FALSE(client.area->known(99));
}

TEST_F(Programs, AreWokenForAcknowledgementsOnceAThirdOfTheirRingIsFree) {
  TestProgram& slow = world.add(1, {64, 65'536, 16'384});
  const auto listens = slow.area->listen(8001, 1).value();
  world.run(millisecond_ns);
  near = client.area->connect(TestPrograms::endpoint(1, 8001)).value();
  ASSERT_TRUE(world.run_until([&] { return client.area->look(near)->connected; }, second_ns));
  const std::vector<std::byte> much(65'536);
  ASSERT_EQ(client.area->send(near, much).value_or(0), much.size());
  ASSERT_TRUE(client.area->fall_asleep());
  static_cast<void>(world.ends[0].service.take_wakes());
  world.run(second_ns);
  EXPECT_TRUE(world.ends[0].service.take_wakes().empty());
  ASSERT_LE(client.area->look(near)->unacknowledged, 50'000u);
  EXPECT_FALSE(client.area->look(near)->writable);
  ASSERT_TRUE(client.area->fall_asleep());
  far = slow.area->accept(listens).value();
  hear(slow, far, 16'384);
  world.run(second_ns);
  EXPECT_FALSE(world.ends[0].service.take_wakes().empty());
  EXPECT_TRUE(client.area->look(near)->writable);
}

TEST_F(Programs, AConnectionWaitsForAnAcceptSlot) {
  listener = server.area->listen(port, 1).value();
  std::vector<SocketArea::Handle> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(client.area->connect(TestPrograms::endpoint(1, port)).value());
  world.run(100 * millisecond_ns);
  EXPECT_EQ(world.ends[1].service.programs()[0].flows, 1u);
  EXPECT_GT(world.ends[1].service.counters().without_accept_slot, 0u);
  // The first connections send, which starts the others' handshakes.
  for (const auto handle : clients) static_cast<void>(client.area->send(handle, text("hello")));
  std::size_t accepted = 0;
  EXPECT_TRUE(world.run_until([&] { return (accepted += accept()) == 3; }, 60 * second_ns));
}

TEST_F(Programs, SeeTheEndOfOneThatDies) {
  connect();
  ASSERT_TRUE(client.area->send(near, text("last words")));
  EXPECT_EQ(hear(server, far, 10), "last words");
  world.run(second_ns);  // it is acknowledged
  world.ends[0].service.close(client.number, world.now);
  world.run(second_ns);
  EXPECT_TRUE(server.area->look(far)->finished);
  EXPECT_EQ(server.area->look(far)->error, TcpError::none);
  EXPECT_TRUE(world.ends[0].service.programs().empty());
}

TEST_F(Programs, SeeAResetOfOneThatDiesWithBytesOnTheWay) {
  connect();
  ASSERT_TRUE(client.area->send(near, text("never heard")));
  const auto listening = client.area->listen(9000, 2);
  ASSERT_TRUE(listening);
  world.ends[0].service.react(world.now);
  world.ends[0].service.close(client.number, world.now);
  world.run(second_ns);
  EXPECT_EQ(server.area->look(far)->error, TcpError::reset);
  EXPECT_EQ(world.ends[0].stack->flows(), 0u);
  // Its port is free.
  TestProgram& next = world.add(0);
  const auto again = next.area->listen(9000, 1);
  world.run(second_ns);
  EXPECT_TRUE(next.area->look(*again)->connected);
}

// The old flow's FIN is not answered when another program opens: with its handle, without it, or even with its number.
TEST_F(Programs, FlowsThatOutliveOneAreNobodysAfterwards) {
  listener = server.area->listen(port, 4).value();
  TcpService& service = world.ends[0].service;
  for (const bool uses_handle : {false, true}) {
    TestProgram before({64, 65'536, 65'536}), next({64, 65'536, 65'536});
    ASSERT_TRUE(world.open(before, 0));
    const auto handle = before.area->connect(TestPrograms::endpoint(1, port)).value();
    ASSERT_TRUE(world.run_until([&] { return accept(); }, second_ns));
    world.run(second_ns);
    service.close(before.number, world.now);
    EXPECT_EQ(world.ends[0].stack->flows(), 1u);
    ASSERT_TRUE(service.open(before.number, next.layout, {}, [&] { return next.memory; }));
    const auto used =
        uses_handle ? std::optional(next.area->connect(TestPrograms::endpoint(1, port)).value()) : std::nullopt;
    world.run(second_ns);
    EXPECT_TRUE(server.area->look(far)->finished);
    server.area->close(far);  // so the flow is gone
    world.run(second_ns);
    EXPECT_TRUE(world.ends[0].ended.empty());
    if (used) {
      EXPECT_EQ(*used, handle);
      EXPECT_TRUE(next.area->look(*used)->connected);
      EXPECT_FALSE(next.area->look(*used)->finished || next.area->look(*used)->closed);
    } else {
      EXPECT_FALSE(next.area->has_events());
    }
    service.close(before.number, world.now);
    while (accept()) server.area->close(far);
    world.run(200 * second_ns);
  }
}

TEST_F(Programs, LoseTheirOwnConnectionsAloneByRubbish) {
  connect();
  TcpCommand good{};
  good.kind = TcpCommandKind::connect;
  good.remote_address = TestNetwork::address(1).value;
  good.remote_port = port;
  good.send_at = good.receive_at = client.layout.bytes - 65'536;
  good.send_bytes = good.receive_bytes = 65'536;
  good.handle = 5;
  const auto changed = [&](auto change) {
    TcpCommand command = good;
    change(command);
    return std::vector<TcpCommand>{command};
  };
  const auto then = [&](auto change) {
    TcpCommand command{};
    command.handle = 5;
    change(command);
    return std::vector<TcpCommand>{good, command};
  };
  const std::vector<std::vector<TcpCommand>> rubbish = {
      changed([](auto& w) { w.kind = TcpCommandKind{0}; }),
      changed([](auto& w) { w.kind = TcpCommandKind{200}; }),
      changed([](auto& w) { w.handle = 64; }),
      changed([](auto& w) { w.handle = ~0u; }),
      changed([](auto& w) { w.send_at = 0; }),  // the rings themselves
      changed([&](auto& w) { w.receive_at = client.layout.own() - 1; }),
      changed([&](auto& w) { w.receive_at = client.layout.bytes - 65'535; }),
      changed([](auto& w) { w.receive_at = ~0ull - 100; }),
      changed([](auto& w) { w.send_bytes = 0; }),
      changed([](auto& w) { w.send_bytes = 65'535; }),
      changed([](auto& w) { w.receive_bytes = 1u << 31; }),
      changed([](auto& w) { w.kind = TcpCommandKind::accept_slot, w.listener = 1000; }),
      changed([](auto& w) { w.kind = TcpCommandKind::listen, w.port = 9999, w.receive_bytes = 1; }),
      then([&](auto& w) { w = good; }),  // in use
      then([](auto& w) { w.kind = TcpCommandKind::offer, w.position = 65'537; }),
      then([](auto& w) { w.kind = TcpCommandKind::offer, w.position = ~0ull; }),
      then([](auto& w) { w.kind = TcpCommandKind::allow, w.position = 65'537; }),
  };
  for (std::size_t i = 0; i < rubbish.size(); ++i) {
    TestProgram& hostile = world.add(0);
    const std::size_t ended = world.ends[0].ended.size();
    for (const TcpCommand& command : rubbish[i]) hostile.write_command(command);
    world.run(second_ns);
    ASSERT_EQ(world.ends[0].ended.size(), ended + 1) << i;
    EXPECT_EQ(world.ends[0].ended.back().program, hostile.number);
    EXPECT_EQ(world.ends[0].ended.back().why.code, Error::protocol);
    EXPECT_EQ(world.ends[0].service.programs().size(), 1u);
    ASSERT_TRUE(client.area->send(near, text("still here")));
    EXPECT_EQ(hear(server, far, 10), "still here") << i;
  }
  EXPECT_EQ(world.ends[0].service.counters().programs_ended, rubbish.size());
}

TEST_F(Programs, EndWhenTheirRingsCannotBe) {
  connect();
  const auto lines = [](TestProgram& program) {
    return reinterpret_cast<wire::TcpProgramLine*>(program.memory.data());
  };
  TestProgram &too_far = world.add(0), &taken = world.add(0), &withdrawn = world.add(0);
  lines(too_far)->commands = too_far.layout.command_slots + 1;
  lines(taken)->events_taken = 7;
  ASSERT_TRUE(taken.area->listen(9000, 1));  // the program gets an event for it
  withdrawn.mapped = false;
  world.run(second_ns);
  EXPECT_EQ(world.ends[0].ended.size(), 3u);
  EXPECT_EQ(world.ends[0].service.programs().size(), 1u);
  ASSERT_TRUE(client.area->send(near, text("still here")));
  EXPECT_EQ(hear(server, far, 10), "still here");
}

TEST_F(Programs, ACommandForAConnectionThatIsGoneIsIgnored) {
  for (const TcpCommandKind kind : {TcpCommandKind::offer, TcpCommandKind::allow, TcpCommandKind::finish,
                                    TcpCommandKind::release, TcpCommandKind::abort}) {
    TcpCommand command{};
    command.kind = kind;
    command.handle = 9;
    command.position = 1 << 20;
    client.write_command(command);
  }
  world.run(second_ns);
  EXPECT_TRUE(world.ends[0].ended.empty());
}

// Pages of rings that were read are returned to the system.
class MemoryOfPrograms : public Programs {
 protected:
  MemoryOfPrograms() {
    listener = writer.area->listen(port, 4).value();
    world.run(second_ns);
    near = reader.area->connect(TestPrograms::endpoint(1, port)).value();
    EXPECT_TRUE(world.run_until([&] { return accepted(); }, 10 * second_ns));
  }
  bool accepted() {
    const auto taken = writer.area->accept(listener);
    if (taken) far = *taken;
    return taken.has_value();
  }
  // Sends through the ring several times, and reads everything.
  void stream(std::uint64_t bytes) {
    std::vector<std::byte> out(20'000), in(20'000);
    const std::uint64_t end = read + bytes;
    world.run_until(
        [&] {
          for (std::uint64_t left = end - sent; left > 0; left = end - sent) {
            const std::size_t part = std::min<std::uint64_t>(left, out.size());
            for (std::size_t i = 0; i < part; ++i) out[i] = stream_byte(1, sent + i);
            const auto taken = writer.area->send(far, Bytes(out).first(part));
            if (!taken) break;
            sent += *taken;
          }
          while (const auto taken = reader.area->receive(near, in)) {
            for (std::size_t i = 0; i < *taken; ++i) wrong += in[i] != stream_byte(1, read + i);
            read += *taken;
          }
          return read == end;
        },
        100 * second_ns);
    ASSERT_EQ(read, end);
  }
  std::uint64_t there() const {
    std::vector<unsigned char> pages((reader.memory.size() + page_bytes - 1) / page_bytes);
    OFP_ASSERT(mincore(reader.memory.data(), reader.memory.size(), pages.data()) == 0);
    return static_cast<std::uint64_t>(std::ranges::count_if(pages, [](unsigned char page) { return page & 1; })) *
           page_bytes;
  }
  bool give_back() {
    world.run(second_ns);
    return reader.area->give_back(world.now);
  }

  static constexpr std::uint32_t ring_bytes = 1 << 20;
  TestProgram &reader = world.add(0, {16, 65'536, ring_bytes}), &writer = world.add(1, {16, 65'536, 65'536});
  std::uint64_t sent = 0, read = 0;
  std::size_t wrong = 0;
};

TEST_F(MemoryOfPrograms, OfAConnectionGoesBackWhenItIsIdle) {
  const std::uint64_t before = there();
  for (int i = 0; i < 3; ++i) {
    stream(3'000'000);
    EXPECT_GE(there(), before + ring_bytes) << i;
    EXPECT_TRUE(give_back()) << "it was not idle until now";
    EXPECT_GE(there(), before + ring_bytes) << i;
    EXPECT_TRUE(give_back());
    world.run(100 * millisecond_ns);
    reader.area->take_in();
    EXPECT_LE(there(), before + (64 << 10)) << i;
    EXPECT_FALSE(give_back());
  }
  stream(10);
  EXPECT_FALSE(give_back()) << "so little is not worth it";
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(world.ends[0].ended.empty());
}

TEST_F(MemoryOfPrograms, OfAConnectionThatIsOverGoesBack) {
  const std::uint64_t before = there();
  stream(3'000'000);
  reader.area->close(near);
  EXPECT_TRUE(give_back()) << "its peer has not closed";
  EXPECT_GE(there(), before + ring_bytes);
  writer.area->close(far);
  world.run(second_ns);
  reader.area->take_in();
  EXPECT_FALSE(give_back());
  EXPECT_LE(there(), before + (64 << 10));
}

// Segments that arrive while pages are returned are lost and retransmitted; data that arrived before, out of order,
// keeps its pages.
TEST_F(MemoryOfPrograms, GoesBackWhileThePeerSends) {
  std::mt19937_64 random(7);
  Impairments bad;
  bad.loss = bad.reorder = 0.2;
  world.ends[1].port->set(bad, {});
  const auto more = [&] {
    std::vector<std::byte> out(1 + random() % 30'000);
    for (std::size_t k = 0; k < out.size(); ++k) out[k] = stream_byte(1, sent + k);
    if (const auto taken = writer.area->send(far, out)) sent += *taken;
  };
  const auto wait = [&] { world.run(static_cast<TimeNs>(random() % 400) * microsecond_ns); };
  for (int i = 0; i < 100; ++i) {
    stream(200'000);
    static_cast<void>(give_back());
    world.run(second_ns);
    if (i % 2 == 0) more();
    wait();
    static_cast<void>(reader.area->give_back(world.now));
    if (i % 2 == 1) more();
    wait();
    if (i % 3 == 0) reader.area->take_in();
    stream(sent - read + 1);
    ASSERT_EQ(wrong, 0u) << i;
  }
  EXPECT_TRUE(world.ends[0].ended.empty());
}

// Peers' data lies where programs say, but the agent allocates the pages.
TEST_F(Programs, OfOneUserTakeNoMoreMemoryForWhatArrivesThanItMay) {
  TcpServiceLimits limits;
  limits.receive_bytes_of_user_max = 1 << 20;
  limits.receive_bytes_max = 3 << 19;
  TestPrograms small(TestNetworkOptions{}, limits);
  const SocketOptions options{64, 65'536, 256 << 10};
  TestProgram &one = small.add(0, options), &two = small.add(0, options),
              &others = small.add(0, options, {1001, false}), &peer = small.add(1, {64, 65'536, 65'536});
  static_cast<void>(peer.area->listen(port, 16));
  small.run(second_ns);
  const auto connect = [&](TestProgram& program, bool ends) {
    const auto flow = program.area->connect(TestPrograms::endpoint(1, port)).value();
    small.run(second_ns);
    const auto look = program.area->look(flow);
    if (ends) program.area->abort(flow);
    small.run(second_ns);
    program.area->take_in();  // frees handles for reuse
    return look->connected ? TcpError::none : look->error;
  };
  for (int i = 0; i < 8; ++i) EXPECT_EQ(connect(one, true), TcpError::none) << i;  // the same ring again
  EXPECT_LE(small.ends[0].service.programs()[0].receive_bytes, 320u << 10);
  std::size_t had = 0;
  for (int i = 0; i < 6; ++i) had += connect(i % 2 == 0 ? one : two, false) == TcpError::none;
  EXPECT_EQ(had, 4u);
  EXPECT_EQ(connect(two, false), TcpError::no_room);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(connect(others, false), TcpError::none);
  EXPECT_EQ(connect(others, false), TcpError::no_room);  // the limit of all users
  // A peer's connection waits, as for an accept slot.
  static_cast<void>(two.area->listen(port, 2));
  small.run(second_ns);
  const auto waits = peer.area->connect(TestPrograms::endpoint(0, port)).value();
  small.run(second_ns);
  EXPECT_EQ(small.ends[0].service.programs()[1].accept_slots, 2u);
  small.ends[0].service.close(one.number, small.now);
  static_cast<void>(peer.area->send(waits, text("so that its segment comes again")));
  EXPECT_TRUE(
      small.run_until([&] { return small.ends[0].service.programs().front().accept_slots == 2 && two.area->take_in(); },
                      60 * second_ns));
}

// Peers that do not read what a closed connection sent keep three quarters of the server's handles, and no more.
TEST_F(Programs, KeepAQuarterOfTheirHandlesWhateverPeersOfClosedConnectionsDo) {
  TestPrograms small(TestNetworkOptions{});
  TestProgram &program = small.add(0, {16, 4096, 1024}), &peer = small.add(1, {64, 1024, 1024});
  static_cast<void>(peer.area->listen(port, 64));
  small.run(second_ns);
  const std::string more(4096, 'x');  // more than the peer's ring holds
  for (int i = 0; i < 40; ++i) {
    const auto flow = program.area->connect(TestPrograms::endpoint(1, port));
    ASSERT_TRUE(flow) << i << ": " << flow.error().message;
    ASSERT_TRUE(small.run_until([&] { return program.area->look(*flow)->connected; }, 10 * second_ns)) << i;
    ASSERT_TRUE(program.area->send(*flow, text(more)));
    program.area->close(*flow);
    small.run(100 * millisecond_ns);
    program.area->take_in();
  }
  EXPECT_EQ(small.ends[0].service.programs()[0].flows, 12u);
}

TEST_F(Programs, HaveQuotas) {
  TcpServiceLimits limits{2, 64, 16 << 20};
  TestPrograms small(TestNetworkOptions{}, limits);
  TestProgram too_many_flows({65, 1024, 1024}), too_much({64, 256 << 10, 256 << 10}), unmapped({64, 1024, 1024}),
      shorter({64, 1024, 1024});
  const auto code = [&](TestProgram& program) { return small.open(program, 0).error().code; };
  EXPECT_EQ(code(too_many_flows), Error::too_large);
  EXPECT_EQ(code(too_much), Error::too_large);
  unmapped.mapped = false;
  EXPECT_EQ(code(unmapped), Error::unsupported);
  shorter.layout.bytes += 4096;
  EXPECT_EQ(code(shorter), Error::invalid);
  shorter.layout.bytes -= 4096;
  shorter.layout.command_slots = 1000;
  EXPECT_EQ(code(shorter), Error::invalid);
  static_cast<void>(small.add(0, {64, 1024, 1024}));
  static_cast<void>(small.add(0, {64, 1024, 1024}));
  TestProgram third({64, 1024, 1024});
  EXPECT_EQ(code(third), Error::too_large);
  EXPECT_EQ(small.ends[0].service.counters().programs_refused, 6u);
  EXPECT_EQ(small.ends[0].service.programs().size(), 2u);
}

TEST_F(Programs, AProgramHasItsOwnHandlesOnly) {
  const SocketOptions few{4, 4096, 4096};
  TestProgram& small = world.add(0, few);
  std::vector<SocketArea::Handle> handles;
  for (int i = 0; i < 4; ++i) handles.push_back(small.area->connect(TestPrograms::endpoint(1, port)).value());
  EXPECT_EQ(small.area->connect(TestPrograms::endpoint(1, port)).error().code, Error::no_space);
  world.run(second_ns);  // all are refused
  for (const auto handle : handles) small.area->close(handle);
  world.run(second_ns);
  small.area->take_in();
  EXPECT_TRUE(small.area->connect(TestPrograms::endpoint(1, port)));
  EXPECT_FALSE(small.area->look(99));
  EXPECT_FALSE(small.area->send(3, text("x")));
}

TEST_F(Programs, AFullRingIsWaitedForAndNothingIsLost) {
  connect();
  std::size_t sent = 0;
  while (client.area->send(near, text("x"))) ++sent;
  EXPECT_EQ(sent, client.layout.command_slots);
  client.area->close(near);  // the ring has no room for the command yet
  static_cast<void>(client.area->take_in());
  EXPECT_FALSE(world.ends[0].service.fall_asleep());
  EXPECT_EQ(hear(server, far, sent), std::string(sent, 'x'));
  const FullRing commands = world.ends[0].service.programs()[0].commands_full;
  EXPECT_EQ(commands.times, 1u);
  EXPECT_EQ(commands.since, never) << "the service has taken them";
  client.area->take_in();
  world.run(second_ns);
  EXPECT_TRUE(server.area->look(far)->finished);
}

TEST_F(Programs, ThatTakeNoEventsAreKnownWithTheTime) {
  connect();
  const auto events = [&] { return world.ends[1].service.programs()[0].events_full; };
  EXPECT_EQ(events().times, 0u);
  for (std::uint32_t i = 0; i < 2 * server.layout.event_slots && events().since == never; ++i) {
    ASSERT_TRUE(client.area->send(near, text("x"))) << i;
    world.run(100 * millisecond_ns);  // acknowledged: each byte has an event of its own
  }
  const TimeNs since = events().since;
  ASSERT_NE(since, never);
  world.run(second_ns);
  EXPECT_EQ(events().since, since) << "nobody has taken any";
  server.area->take_in();
  world.run(second_ns);
  EXPECT_EQ(events().since, never);
  EXPECT_EQ(events().times, 1u);
}

TEST_F(Programs, NeitherSideSleepsOverWhatTheOtherSaid) {
  connect();
  world.run(second_ns);
  client.area->take_in();
  server.area->take_in();
  ASSERT_TRUE(world.ends[0].service.fall_asleep());
  ASSERT_TRUE(world.ends[1].service.fall_asleep());
  ASSERT_TRUE(server.area->fall_asleep());
  EXPECT_TRUE(world.ends[1].service.take_wakes().empty());
  const std::size_t wakes = client.wakes_of_agent;
  ASSERT_TRUE(client.area->send(near, text("wake")));
  EXPECT_EQ(client.wakes_of_agent, wakes + 1);
  ASSERT_TRUE(client.area->send(near, text(" up")));
  EXPECT_EQ(client.wakes_of_agent, wakes + 1) << "once is enough";
  EXPECT_FALSE(world.ends[0].service.fall_asleep());
  world.run(second_ns);
  EXPECT_EQ(world.ends[1].service.take_wakes(), (std::vector<TcpService::Wake>{{server.number, 0}}));
  EXPECT_FALSE(server.area->fall_asleep()) << "there are events";
  EXPECT_EQ(hear(server, far, 7), "wake up");
}

// Another process of the client's: here a second view of the same memory.
class Processes : public Programs {
 protected:
  std::unique_ptr<SocketArea> child_of(TestProgram& program) {
    const std::uint32_t process = program.area->add_process().value();
    EXPECT_TRUE(world.ends[&program == &server ? 1 : 0].service.add_process(program.number, process));
    return std::make_unique<SocketArea>(
        program.memory, SocketOptions{64, 65'536, 65'536}, [](std::uint32_t) {}, process);
  }
  void dies(TestProgram& program, const SocketArea& process) {
    EXPECT_TRUE(world.ends[&program == &server ? 1 : 0].service.remove_process(program.number, process.process()));
    world.run(second_ns);
  }
  static std::vector<SocketArea::Handle> changed(SocketArea& area) {
    std::vector<SocketArea::Handle> all;
    while (const auto handle = area.take_changed()) all.push_back(*handle);
    return all;
  }
};

TEST_F(Processes, AConnectionEndsWithTheLastThatHoldsIt) {
  connect();
  const auto child = child_of(client);
  client.area->close(near);
  world.run(second_ns);
  EXPECT_FALSE(client.area->holds(near));
  EXPECT_FALSE(server.area->look(far)->finished);
  ASSERT_TRUE(child->send(near, text("still")));
  EXPECT_EQ(hear(server, far, 5), "still");
  child->close(near);
  world.run(second_ns);
  EXPECT_TRUE(server.area->look(far)->finished);
}

// A connect or listen that is still pending is reset, and leaves nothing behind.
TEST_F(Programs, StopWhatIsNotDecidedYet) {
  near = client.area->connect(TestPrograms::endpoint(1, port)).value();
  EXPECT_TRUE(client.area->stop(near));
  EXPECT_FALSE(client.area->stop(near));
  EXPECT_EQ(client.area->known(near)->error, TcpError::reset);
  EXPECT_EQ(client.area->send(near, text("late")).error().code, Error::peer_lost);
  client.area->close(near);
  connect();
  EXPECT_FALSE(client.area->stop(near));
  EXPECT_TRUE(client.area->look(near)->connected);
}

TEST_F(Processes, AListenerThatOneStopsListensForNobody) {
  listener = server.area->listen(port, 4).value();
  const auto child = child_of(server);
  near = client.area->connect(TestPrograms::endpoint(1, port)).value();
  ASSERT_TRUE(world.run_until([&] { return server.area->look(listener)->readable; }, second_ns));
  static_cast<void>(changed(*server.area));
  EXPECT_TRUE(child->stop(listener));
  EXPECT_EQ(changed(*server.area), std::vector{listener});
  for (SocketArea* const each : {server.area.get(), child.get()}) {
    EXPECT_EQ(each->accept(listener).error().code, Error::closed);
    EXPECT_FALSE(each->stop(listener));
  }
  ASSERT_TRUE(world.run_until([&] { return client.area->look(near)->error == TcpError::reset; }, second_ns));
  client.area->close(near);

  // The port is free, even while a process still holds the former listener's handle.
  const auto before = listener;
  listener = server.area->listen(port, 4).value();
  ASSERT_TRUE(world.run_until([&] { return server.area->look(listener)->connected; }, second_ns));
  near = client.area->connect(TestPrograms::endpoint(1, port)).value();
  ASSERT_TRUE(world.run_until([&] { return accept(); }, second_ns));
  EXPECT_NE(listener, before);
  for (SocketArea* const each : {server.area.get(), child.get()}) each->close(before);
  EXPECT_TRUE(server.area->send(far, text("hello")));
  EXPECT_EQ(hear(client, near, 5), "hello");
  EXPECT_TRUE(world.ends[1].ended.empty());
}

TEST_F(Processes, OneThatDiesLetsGoOfWhatItHeldAndOfNothingElse) {
  connect();
  const auto shared = near;
  const auto child = child_of(client);
  const auto own = child->connect(TestPrograms::endpoint(1, port)).value();
  world.run(second_ns);
  const auto of_child = server.area->accept(listener).value();
  ASSERT_TRUE(child->look(own)->connected);
  dies(client, *child);
  EXPECT_FALSE(server.area->look(of_child)->finished) << "nobody of the program has looked yet";
  EXPECT_TRUE(client.area->take_in());
  world.run(second_ns);
  EXPECT_TRUE(server.area->look(of_child)->finished);
  ASSERT_TRUE(client.area->send(shared, text("here")));
  EXPECT_EQ(hear(server, far, 4), "here");
  EXPECT_EQ(client.area->add_process().value(), child->process()) << "the number is used again";
}

TEST_F(Processes, EachIsToldOfWhatItHoldsAndWokenForNothingElse) {
  connect();
  const auto child = child_of(server);
  EXPECT_EQ(changed(*child).size(), 2u) << "what it begins with";
  EXPECT_FALSE(changed(*server.area).empty());
  const auto second = client.area->connect(TestPrograms::endpoint(1, port)).value();
  world.run(second_ns);
  child->take_in();
  EXPECT_EQ(changed(*child), std::vector{listener});
  EXPECT_TRUE(server.area->take_in()) << "it was told by the child";
  EXPECT_EQ(changed(*server.area), std::vector{listener});
  const auto of_child = child->accept(listener).value();
  world.run(second_ns);
  EXPECT_FALSE(server.area->holds(of_child));

  ASSERT_TRUE(child->fall_asleep());
  ASSERT_TRUE(server.area->fall_asleep());
  static_cast<void>(world.ends[1].service.take_wakes());
  ASSERT_TRUE(client.area->send(second, text("to the child")));
  world.run(second_ns);
  EXPECT_EQ(world.ends[1].service.take_wakes(), (std::vector<TcpService::Wake>{{server.number, child->process()}}));
  ASSERT_TRUE(client.area->send(near, text("to both")));
  world.run(second_ns);
  EXPECT_EQ(world.ends[1].service.take_wakes(), (std::vector<TcpService::Wake>{{server.number, 0}}))
      << "the child is awake";
  EXPECT_TRUE(server.area->take_in());
  EXPECT_EQ(changed(*server.area), std::vector{far});
  EXPECT_FALSE(child->fall_asleep()) << "the other took in what concerns it";
}

TEST_F(Processes, TheLastEndsTheProgramAndRubbishIsRefused) {
  connect();
  TcpService& service = world.ends[0].service;
  EXPECT_EQ(service.add_process(client.number, 0).error().code, Error::protocol);
  EXPECT_EQ(service.add_process(client.number, wire::tcp_processes_max).error().code, Error::protocol);
  EXPECT_EQ(service.add_process(99, 1).error().code, Error::closed);
  ASSERT_TRUE(service.add_process(client.number, 7));
  EXPECT_TRUE(service.remove_process(client.number, 7));
  EXPECT_EQ(service.add_process(client.number, 7).error().code, Error::protocol)
      << "the others were not told yet that the first ended";
  world.run(second_ns);
  EXPECT_TRUE(service.add_process(client.number, 7));
  EXPECT_TRUE(service.remove_process(client.number, 7));
  EXPECT_FALSE(service.remove_process(client.number, 0));
}

TEST_F(Processes, AreAsManyAsMayBe) {
  connect();
  for (std::uint32_t i = 1; i < wire::tcp_processes_max; ++i) ASSERT_EQ(client.area->add_process().value(), i);
  EXPECT_EQ(client.area->add_process().error().code, Error::no_space);
  client.area->drop_process(300);
  EXPECT_EQ(client.area->add_process().value(), 300u);
}

TEST_F(Processes, OneThatIsKilledInACallLeavesTheOthersTheirConnections) {
  connect();
  for (int i = 0; i < 20; ++i) {
    const auto child = child_of(client);
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      for (;;) static_cast<void>(child->look(near)), child->close(near), child->take_in();
    }
    usleep(2000);
    kill(pid, SIGKILL);
    ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
    dies(client, *child);
    client.area->take_in();
    ASSERT_TRUE(client.area->send(near, text("here")));
    ASSERT_EQ(hear(server, far, 4), "here");
  }
}

TEST_F(Programs, AForkedChildGoesOnWithTheConnectionsOfItsParent) {
  connect();
  ASSERT_TRUE(client.area->send(near, text("parent, ")));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(client.area->send(near, text("child, ")) ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(client.area->send(near, text("parent")));
  EXPECT_EQ(hear(server, far, 21), "parent, child, parent");
}

}  // namespace
}  // namespace offpath::tcp
