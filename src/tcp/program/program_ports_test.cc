// Ports that programs bind and listen on: programs that may have one, and programs that share one.
#include "testing/tcp/two_programs.h"

namespace offpath::tcp {
namespace {

using wire::TcpError;

constexpr std::uint16_t reuse_port = wire::tcp_reuse_port | wire::tcp_families,
                        reuse_address = wire::tcp_reuse_address | wire::tcp_families;

class ProgramPorts : public TwoPrograms {
 protected:
  // Its outcome.
  TcpError outcome(TestProgram& program, Result<SocketArea::Handle> handle) {
    EXPECT_TRUE(world.run_until(
        [&] {
          const auto look = program.area->look(*handle);
          return look->connected || look->closed;
        },
        second_ns));
    return program.area->look(*handle)->error;
  }
  // A connection from the client, which a listener of the server has accepted: its number; nullopt: it is refused.
  std::optional<std::size_t> connect_to(const std::vector<SocketArea::Handle>& listeners) {
    const auto made = client.area->connect(TestPrograms::endpoint(1, port)).value();
    std::optional<std::size_t> accepted;
    world.run_until(
        [&] {
          for (std::size_t i = 0; i < listeners.size(); ++i)
            if (server.area->accept(listeners[i])) accepted = i;
          return accepted || client.area->look(made)->closed;
        },
        second_ns);
    return accepted;
  }

  TestProgram &other = world.add(1), &strange = world.add(1, {64, 65'536, 65'536}, {.user = 7});
};

TEST_F(ProgramPorts, ABoundPortIsOneHandlesUntilItIsClosed) {
  const auto bound = server.area->bind(port).value();
  EXPECT_EQ(outcome(server, bound), TcpError::none);
  EXPECT_EQ(server.area->look(bound)->local.port, port);
  for (TestProgram* program : {&server, &other}) {
    EXPECT_EQ(outcome(*program, program->area->bind(port)), TcpError::address_in_use);
    EXPECT_EQ(outcome(*program, program->area->listen(port, 1)), TcpError::address_in_use);
  }
  EXPECT_EQ(outcome(other, other.area->connect(TestPrograms::endpoint(0, port), port)), TcpError::address_in_use);
  EXPECT_EQ(connect_to({}), std::nullopt);  // nobody listens
  const auto listens = server.area->listen(port, 1, wire::tcp_families, bound).value();
  EXPECT_EQ(outcome(server, listens), TcpError::none);
  server.area->close(bound);
  world.run(millisecond_ns);
  EXPECT_EQ(connect_to({listens}), 0u);
  EXPECT_EQ(outcome(other, other.area->bind(port)), TcpError::address_in_use);
  server.area->close(listens);
  world.run(millisecond_ns);
  EXPECT_EQ(outcome(other, other.area->bind(port)), TcpError::none);
}

TEST_F(ProgramPorts, OfAProgramThatDiesAreFree) {
  static_cast<void>(server.area->bind(port));
  world.run(millisecond_ns);
  world.ends[1].service.close(server.number, world.now);
  EXPECT_EQ(outcome(other, other.area->bind(port)), TcpError::none);
}

TEST_F(ProgramPorts, AnyPortIsOneThatNobodyHas) {
  const auto one = server.area->bind(0).value(), two = other.area->bind(0).value();
  EXPECT_EQ(outcome(server, one), TcpError::none);
  EXPECT_EQ(outcome(other, two), TcpError::none);
  EXPECT_NE(server.area->look(one)->local.port, other.area->look(two)->local.port);
  EXPECT_GE(server.area->look(one)->local.port, 49'152);
}

TEST_F(ProgramPorts, PrivilegedOnesAreForRoot) {
  EXPECT_EQ(outcome(server, server.area->bind(1023)), TcpError::denied);
}

// SO_REUSEPORT: connections in turn; a listener that closes leaves the port to the others.
TEST_F(ProgramPorts, ListenersOfOneProgramShareAPort) {
  std::vector<SocketArea::Handle> listeners;
  for (int i = 0; i < 3; ++i) {
    const auto bound = server.area->bind(port, reuse_port).value();
    EXPECT_EQ(outcome(server, bound), TcpError::none);
    listeners.push_back(server.area->listen(port, 4, reuse_port, bound).value());
    EXPECT_EQ(outcome(server, listeners.back()), TcpError::none);
    server.area->close(bound);
  }
  world.run(millisecond_ns);
  std::vector<int> connections(3);
  for (int i = 0; i < 6; ++i) ++connections[connect_to(listeners).value()];
  EXPECT_EQ(connections, std::vector<int>({2, 2, 2}));
  EXPECT_EQ(outcome(server, server.area->bind(port)), TcpError::address_in_use);  // without the option
  EXPECT_EQ(outcome(strange, strange.area->bind(port, reuse_port)), TcpError::address_in_use);
  for (std::size_t left = 3; left > 0; --left) {
    server.area->close(listeners.front());
    listeners.erase(listeners.begin());
    world.run(millisecond_ns);
    EXPECT_EQ(connect_to(listeners).has_value(), left > 1) << left;
  }
}

// As a server's sockets of IPv4, and of IPv6 with IPV6_V6ONLY.
TEST_F(ProgramPorts, OfOneFamilyAreNotTheOthers) {
  const std::uint16_t mine = wire::tcp_for(test_family()), others = wire::tcp_families & ~mine;
  const auto ours = server.area->listen(port, 4, mine).value(), theirs = other.area->listen(port, 4, others).value();
  EXPECT_EQ(outcome(server, ours), TcpError::none);
  EXPECT_EQ(outcome(other, theirs), TcpError::none);
  for (const std::uint16_t families : {wire::tcp_for_ipv4, wire::tcp_for_ipv6, wire::tcp_families})
    EXPECT_EQ(outcome(strange, strange.area->bind(port, families)), TcpError::address_in_use) << families;
  EXPECT_EQ(connect_to({ours}), 0u);
  server.area->close(ours);
  world.run(second_ns);
  EXPECT_FALSE(connect_to({}));
  // A listener of both families gets all connections.
  const auto both = server.area->listen(port, 4, mine).value();
  EXPECT_EQ(outcome(server, both), TcpError::none);
  EXPECT_EQ(outcome(strange, strange.area->listen(port + 1, 4, wire::tcp_families)), TcpError::none);
  EXPECT_EQ(outcome(server, server.area->bind(port + 1, mine)), TcpError::address_in_use);
  EXPECT_EQ(outcome(server, server.area->bind(port + 1, others)), TcpError::address_in_use);
  EXPECT_EQ(connect_to({both}), 0u);
}

// As the workers of one server that have not opened their first socket before they were forked.
TEST_F(ProgramPorts, ProgramsOfOneUserShareAPort) {
  const auto one = server.area->listen(port, 4, reuse_port).value();
  const auto two = other.area->listen(port, 4, reuse_port).value();
  EXPECT_EQ(outcome(server, one), TcpError::none);
  EXPECT_EQ(outcome(other, two), TcpError::none);
  const auto accepted_by = [&]() -> TestProgram* {
    const auto made = client.area->connect(TestPrograms::endpoint(1, port)).value();
    TestProgram* by = nullptr;
    world.run_until(
        [&] {
          if (server.area->accept(one)) by = &server;
          if (by == nullptr && other.area->accept(two)) by = &other;
          return by != nullptr || client.area->look(made)->closed;
        },
        second_ns);
    return by;
  };
  std::vector<TestProgram*> by;
  for (int i = 0; i < 4; ++i) by.push_back(accepted_by());
  EXPECT_EQ(std::ranges::count(by, &server), 2);
  EXPECT_EQ(std::ranges::count(by, &other), 2);
  world.ends[1].service.close(server.number, world.now);  // the stack knew its listener
  for (int i = 0; i < 3; ++i) EXPECT_EQ(accepted_by(), &other);
  world.ends[1].service.close(other.number, world.now);
  EXPECT_EQ(outcome(strange, strange.area->bind(port)), TcpError::none);
}

// Also once the listener is gone that the stack knew first, and where a listener has the options of the stack.
TEST_F(ProgramPorts, ConnectionsHaveTheOptionsOfTheListenerThatGetsThem) {
  using wire::TcpCongestion;
  const channel::FlowSettings first{
      .congestion = TcpCongestion::new_reno, .traffic_class4 = 8, .traffic_class6 = 8, .user_timeout_ms = 3000};
  const auto one = server.area->listen(port, 4, reuse_port, wire::tcp_no_handle, &first).value();
  const auto two = other.area->listen(port, 4, reuse_port).value();
  EXPECT_EQ(outcome(server, one), TcpError::none);
  EXPECT_EQ(outcome(other, two), TcpError::none);
  std::uint32_t begun = 0, of_one = 0;
  const auto check_next = [&] {
    static_cast<void>(client.area->connect(TestPrograms::endpoint(1, port)).value());
    bool by_one = false;
    ASSERT_TRUE(world.run_until(
        [&] { return (by_one = server.area->accept(one).has_value()) || other.area->accept(two).has_value(); },
        second_ns));
    world.run(millisecond_ns);
    const Flow* const made = world.ends[1].stack->flow({begun++, 1});
    ASSERT_NE(made, nullptr);
    of_one += by_one ? 1 : 0;
    EXPECT_EQ(made->algorithm, by_one ? TcpCongestion::new_reno : TcpCongestion::agents);
    EXPECT_EQ(made->slow->options.traffic_class(test_family()), by_one ? 8 : 0);
    EXPECT_EQ(made->slow->options.user_timeout_ns, by_one ? 3 * second_ns : 0);
  };
  for (int i = 0; i < 4; ++i) check_next();
  EXPECT_EQ(of_one, 2u);
  server.area->close(one);  // the stack knew it
  world.run(millisecond_ns);
  for (int i = 0; i < 2; ++i) check_next();
  EXPECT_EQ(of_one, 2u);
}

// Over a link all programs are their relay's user's, but not those of one user on their machine.
TEST_F(ProgramPorts, UsersBeyondALinkDoNotShareTheirPorts) {
  const auto linked = [&](std::uint32_t user_there) -> TestProgram& {
    return world.add(1, {64, 65'536, 65'536}, {.user = 0, .linked = true, .user_there = user_there});
  };
  TestProgram &one = linked(1), &same = linked(1), &two = linked(2);
  EXPECT_EQ(outcome(one, one.area->bind(port, reuse_port)), TcpError::none);
  EXPECT_EQ(outcome(same, same.area->bind(port, reuse_port)), TcpError::none);
  EXPECT_EQ(outcome(two, two.area->bind(port, reuse_port)), TcpError::address_in_use);
  EXPECT_EQ(outcome(other, other.area->bind(port, reuse_port)), TcpError::address_in_use);
}

// SO_REUSEADDR: as long as nobody listens.
TEST_F(ProgramPorts, ABoundPortMayBeBoundAgainUntilSomebodyListens) {
  const auto one = server.area->bind(port, reuse_address).value();
  const auto two = other.area->bind(port, reuse_address).value();
  EXPECT_EQ(outcome(server, one), TcpError::none);
  EXPECT_EQ(outcome(other, two), TcpError::none);
  EXPECT_EQ(outcome(server, server.area->listen(port, 1, reuse_address, one)), TcpError::none);
  EXPECT_EQ(outcome(other, other.area->listen(port, 1, reuse_address, two)), TcpError::address_in_use);
  EXPECT_EQ(outcome(other, other.area->bind(port, reuse_address)), TcpError::address_in_use);
}

// One that takes less would be given more than it has room for.
TEST_F(ProgramPorts, ListenersThatShareAPortHaveRingsOfOneSize) {
  wire::TcpCommand command{};
  command.kind = wire::TcpCommandKind::listen;
  command.port = port;
  command.flags = reuse_port;
  command.receive_bytes = 65'536;
  server.write_command(command);
  command.handle = 1;
  command.receive_bytes = 4096;
  server.write_command(command);
  world.run(millisecond_ns);
  EXPECT_TRUE(world.ends[1].ended.empty());
  const auto count = [&](bool listens) {
    const auto all = world.ends[1].service.connections(10);
    return std::ranges::count_if(all, [&](const auto& each) { return each.listens == listens; });
  };
  EXPECT_EQ(count(true), 1) << "the other was refused";
}

}  // namespace
}  // namespace offpath::tcp
