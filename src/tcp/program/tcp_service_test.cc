// Programs' requests to the service, and those that it refuses. Beside: program_ends, _memory, _ports, _processes and
// _rings_test.
#include "tcp/program/tcp_service.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <span>

#include "testing/tcp/linked_program.h"
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
  EXPECT_EQ(error_of(client.area->connect({test_address(0x0b000001), port})), TcpError::unreachable);
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

// A connection uses the congestion control that its program chose, if it may, and otherwise the stack's.
TEST_F(Programs, ChooseCongestionControlAsFarAsTheyAreAllowed) {
  using wire::TcpCongestion;
  TestProgram &root = world.add(0, {64, 65'536, 65'536}, {0, true}),
              &other = world.add(0, {64, 65'536, 65'536}, {7, false});
  EXPECT_EQ(other.area->agent().congestion(), TcpCongestion::cubic);
  std::uint32_t begun = 0;
  const auto goes_by = [&](TestProgram& program, TcpCongestion chosen, bool later) {
    const channel::FlowSettings settings{.congestion = chosen, .traffic_class4 = 8, .traffic_class6 = 8};
    const auto flow = program.area->connect(TestPrograms::endpoint(1, port), 0, 0, later ? nullptr : &settings).value();
    if (later) program.area->set_flow_settings(flow, settings);
    EXPECT_TRUE(world.run_until([&] { return accept() && program.area->look(flow)->connected; }, second_ns));
    const Flow* const made = world.ends[0].stack->flow({begun++, 1});
    EXPECT_EQ(made->slow->options.traffic_class(test_family()), 8);
    return made->algorithm;
  };
  listener = server.area->listen(port, 16).value();
  for (const bool later : {false, true}) {
    EXPECT_EQ(goes_by(root, TcpCongestion::dctcp, later), TcpCongestion::dctcp);
    EXPECT_EQ(goes_by(other, TcpCongestion::new_reno, later), TcpCongestion::new_reno);
    EXPECT_FALSE(other.area->agent().may_choose(TcpCongestion::timely));
    for (const TestProgram* each : {&root, &other}) {
      const auto everybody_may = [each](TcpCongestion congestion) {
        return each->area->agent().may_choose(congestion, channel::AgentWords::Rights::of_everybody);
      };
      EXPECT_TRUE(everybody_may(TcpCongestion::new_reno));
      EXPECT_FALSE(everybody_may(TcpCongestion::timely));
    }
    EXPECT_TRUE(root.area->agent().may_choose(TcpCongestion::timely));
    EXPECT_EQ(goes_by(other, TcpCongestion::timely, later), TcpCongestion::agents);
  }
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

// All handles are in use, and connections wait. However one of them ends, the next one gets its handle.
TEST(FullAreas, AcceptAgainWhenAConnectionIsClosed) {
  constexpr std::uint16_t port = 8000;
  constexpr std::size_t slots = 3, all = 9;
  for (const bool is_linked : {false, true}) {
    TestNetworkOptions network;
    network.stack.time_wait_ns = network.stack.fin_wait_ns = second_ns;
    LinkedPrograms world{network};
    const SocketOptions few{slots + 1, 65'536, 65'536};
    TestProgram& client = world.add(0);
    TestProgram& server = is_linked ? world.add_linked(1, 2 * microsecond_ns, 1, few).program() : world.add(1, few);
    const auto listener = server.area->listen(port, 8).value();
    ASSERT_TRUE(world.run_until([&] { return server.area->look(listener)->connected; }, second_ns));
    std::vector<SocketArea::Handle> near;
    const auto connect = [&] { near.push_back(client.area->connect(TestPrograms::endpoint(1, port)).value()); };
    for (std::size_t i = 0; i < slots + 1; ++i) connect();
    std::deque<SocketArea::Handle> open;
    std::size_t accepted = 0;
    const auto accept = [&] {
      const auto handle = server.area->accept(listener);
      if (handle) open.push_back(*handle), ++accepted;
      return handle.has_value();
    };
    // By the port that it connects from: connections that wait are not accepted in their order.
    const auto peer_of = [&](SocketArea::Handle handle) {
      const std::uint16_t from = server.area->look(handle)->remote.port;
      return *std::ranges::find_if(near, [&](SocketArea::Handle each) {
        const auto look = client.area->look(each);
        return look && look->local.port == from;
      });
    };
    ASSERT_TRUE(world.run_until([&] { return accept() && accepted == slots; }, second_ns));
    world.run(100 * millisecond_ns);
    EXPECT_FALSE(accept());
    for (int turn = 0; accepted < all; ++turn) {
      const SocketArea::Handle ends = open.front(), peer = peer_of(ends);
      open.pop_front();
      if (turn % 3 == 0) {
        server.area->abort(ends);
      } else {
        const bool peer_first = turn % 3 == 1;
        (peer_first ? client : server).area->close(peer_first ? peer : ends);
        world.run(millisecond_ns);
        (peer_first ? server : client).area->close(peer_first ? ends : peer);
      }
      ASSERT_TRUE(world.run_until(accept, 20 * second_ns)) << turn << is_linked;
      connect();
      ASSERT_TRUE(server.area->send(open.back(), std::as_bytes(std::span("here", 4))));
    }
    EXPECT_TRUE(world.ends[1].ended.empty());
  }
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

// Its memory is unmapped when it ends.
TEST_F(Programs, ThreadsOfOneThatHasEndedAreNotWoken) {
  connect();
  const channel::SleepWord word = client.area->sleep_word(near);
  static_cast<void>(word.begin());
  ASSERT_TRUE(server.area->send(far, text("news")));
  world.run(millisecond_ns);
  ASSERT_TRUE(word.is_waking());
  world.ends[0].service.close(client.number, world.now);
  world.ends[0].service.wake_threads();
  EXPECT_TRUE(word.is_waking()) << "the agent changed it";
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
  wire::TcpConnect connects{};
  connects.kind = TcpCommandKind::connect;
  connects.remote_address = TestNetwork::address(1);
  connects.remote_port = port;
  auto good = std::bit_cast<TcpCommand>(connects);
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
      changed([](auto& w) { w.kind = TcpCommandKind::listen, w.port = 9999, w.receive_bytes = 1, w.flags = 48; }),
      changed([](auto& w) { w.kind = TcpCommandKind::listen, w.port = 9999, w.flags = 0; }),  // for no family
      changed([](auto& w) { w.kind = TcpCommandKind::bind, w.port = 9999, w.flags = wire::tcp_reuse_port; }),
      changed([](auto& w) { w.flags = 7 << wire::tcp_congestion_shift; }),  // of no name
      then([](auto& w) { w.kind = TcpCommandKind::options, w.flags = 5 << wire::tcp_congestion_shift; }),
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

}  // namespace
}  // namespace offpath::tcp
