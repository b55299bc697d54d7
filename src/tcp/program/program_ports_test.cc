// Ports that programs bind and listen on: who may have one, and who shares it.
#include "testing/tcp/two_programs.h"

namespace offpath::tcp {
namespace {

using wire::TcpError;

class ProgramPorts : public TwoPrograms {
 protected:
  // What became of it.
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

  TestProgram& other = world.add(1);
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
  const auto listens = server.area->listen(port, 1, 0, bound).value();
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

// SO_REUSEPORT: connections in turn; whoever leaves leaves the port to the rest.
TEST_F(ProgramPorts, ListenersOfOneProgramShareAPort) {
  std::vector<SocketArea::Handle> listeners;
  for (int i = 0; i < 3; ++i) {
    const auto bound = server.area->bind(port, wire::tcp_reuse_port).value();
    EXPECT_EQ(outcome(server, bound), TcpError::none);
    listeners.push_back(server.area->listen(port, 4, wire::tcp_reuse_port, bound).value());
    EXPECT_EQ(outcome(server, listeners.back()), TcpError::none);
    server.area->close(bound);
  }
  world.run(millisecond_ns);
  std::vector<int> connections(3);
  for (int i = 0; i < 6; ++i) ++connections[connect_to(listeners).value()];
  EXPECT_EQ(connections, std::vector<int>({2, 2, 2}));
  EXPECT_EQ(outcome(server, server.area->bind(port)), TcpError::address_in_use);  // without the option
  EXPECT_EQ(outcome(other, other.area->bind(port, wire::tcp_reuse_port)), TcpError::address_in_use);
  for (std::size_t left = 3; left > 0; --left) {
    server.area->close(listeners.front());
    listeners.erase(listeners.begin());
    world.run(millisecond_ns);
    EXPECT_EQ(connect_to(listeners).has_value(), left > 1) << left;
  }
}

// SO_REUSEADDR: as long as nobody listens.
TEST_F(ProgramPorts, ABoundPortMayBeBoundAgainUntilSomebodyListens) {
  const auto one = server.area->bind(port, wire::tcp_reuse_address).value();
  const auto two = other.area->bind(port, wire::tcp_reuse_address).value();
  EXPECT_EQ(outcome(server, one), TcpError::none);
  EXPECT_EQ(outcome(other, two), TcpError::none);
  EXPECT_EQ(outcome(server, server.area->listen(port, 1, wire::tcp_reuse_address, one)), TcpError::none);
  EXPECT_EQ(outcome(other, other.area->listen(port, 1, wire::tcp_reuse_address, two)), TcpError::address_in_use);
  EXPECT_EQ(outcome(other, other.area->bind(port, wire::tcp_reuse_address)), TcpError::address_in_use);
}

// One that takes less would be given more than it has room for.
TEST_F(ProgramPorts, ListenersThatShareAPortHaveRingsOfOneSize) {
  wire::TcpCommand command{};
  command.kind = wire::TcpCommandKind::listen;
  command.port = port;
  command.flags = wire::tcp_reuse_port;
  command.receive_bytes = 65'536;
  server.write_command(command);
  command.handle = 1;
  command.receive_bytes = 4096;
  server.write_command(command);
  world.run(millisecond_ns);
  ASSERT_EQ(world.ends[1].ended.size(), 1u);
  EXPECT_EQ(world.ends[1].ended[0].why.code, Error::protocol);
}

}  // namespace
}  // namespace offpath::tcp
