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

// There are more of them than segments of a round (FrameQueue::strays_max). Those with unread bytes are reset.
TEST_F(ProgramEnds, EachOfVeryManyPeersLearnsThatAProgramHasDied) {
  constexpr std::uint32_t count = 2000;
  constexpr SocketOptions options{.flows = 4096, .send_bytes = 4096, .receive_bytes = 4096};
  TestProgram &dies = world.add(1, options), &many = world.add(0, options);
  const auto listens = dies.area->listen(8003, 512).value();
  std::vector<SocketArea::Handle> made;
  for (std::uint32_t i = 0; i < count; ++i) {
    made.push_back(many.area->connect(TestPrograms::endpoint(1, 8003)).value());
    ASSERT_TRUE(world.run_until([&] { return dies.area->accept(listens).has_value(); }, second_ns)) << i;
    if (i % 2 == 0) {
      ASSERT_TRUE(many.area->send(made.back(), text("unread")));
    }
  }
  world.run(second_ns);
  EXPECT_EQ(world.ends[1].service.programs().back().flows, count);
  const std::uint64_t before = world.ends[1].stack->counters().drops[static_cast<std::size_t>(Drop::no_room)];
  world.ends[1].service.close(dies.number, world.now);
  EXPECT_FALSE(world.ends[1].service.has(dies.number));
  EXPECT_FALSE(world.ends[1].service.fall_asleep()) << "some have not ended";
  TestProgram& next = world.add(1);
  const auto again = next.area->listen(8003, 1).value();
  const auto untold = [&] {
    many.area->take_in();  // its ring of events has less room
    std::uint32_t wrong = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto look = many.area->known(made[i]);
      wrong += i % 2 == 0 ? look->error != TcpError::reset : !look->finished || look->error != TcpError::none;
    }
    return wrong;
  };
  world.run_until([&] { return untold() == 0; }, second_ns);
  EXPECT_EQ(untold(), 0u);
  EXPECT_TRUE(next.area->look(again)->connected) << "its port was free";
  EXPECT_EQ(world.ends[1].stack->counters().drops[static_cast<std::size_t>(Drop::no_room)], before);
  EXPECT_TRUE(world.ends[1].service.fall_asleep());
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
