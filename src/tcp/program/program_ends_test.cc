// How connections end when their programs close them or die.
#include "testing/tcp/two_programs.h"

namespace offpath::tcp {
namespace {

using wire::TcpError;
using ProgramEnds = TwoPrograms;

// As in the kernel: FIN says that all was read.
TEST_F(ProgramEnds, APeerLearnsWhetherAProgramThatDiedHadReadAll) {
  for (const bool reads : {true, false}) {
    TestProgram& dies = world.add(1);
    const std::uint16_t at = reads ? 8001 : 8002;
    const auto listens = dies.area->listen(at, 1).value();
    world.run(millisecond_ns);
    near = client.area->connect(TestPrograms::endpoint(1, at)).value();
    ASSERT_TRUE(world.run_until([&] { return client.area->look(near)->connected; }, second_ns));
    ASSERT_TRUE(client.area->send(near, text("a question")));
    SocketArea::Handle accepted = 0;
    ASSERT_TRUE(world.run_until(
        [&] {
          if (const auto flow = dies.area->accept(listens)) accepted = *flow;
          return accepted != 0 && dies.area->look(accepted)->unread == 10;
        },
        second_ns));
    if (reads) hear(dies, accepted, 10);
    world.ends[1].service.close(dies.number, world.now);
    world.run(second_ns);
    EXPECT_EQ(client.area->look(near)->error, reads ? TcpError::none : TcpError::reset);
    EXPECT_EQ(client.area->look(near)->finished, reads);
  }
}

// The agent has not taken the command yet: without the bytes, FIN would be a lie.
TEST_F(ProgramEnds, AProgramThatDiesRightAfterItSentIsNotFinished) {
  connect();
  ASSERT_TRUE(server.area->send(far, text("an answer")));
  world.ends[1].service.close(server.number, world.now);
  world.run(second_ns);
  EXPECT_FALSE(client.area->look(near)->finished);
  EXPECT_EQ(client.area->look(near)->error, TcpError::reset);
}

// They arrived after its last look at the connection.
TEST_F(ProgramEnds, ClosingAConnectionWithBytesThatItHasNotSeenResetsThePeer) {
  connect();
  ASSERT_TRUE(client.area->send(near, text("too late")));
  world.run(second_ns);
  ASSERT_EQ(server.area->known(far)->unread, 0u);
  server.area->close(far);
  ASSERT_TRUE(world.run_until([&] { return client.area->look(near)->error == TcpError::reset; }, second_ns));
}

}  // namespace
}  // namespace offpath::tcp
