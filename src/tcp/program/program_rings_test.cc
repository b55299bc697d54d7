// Rings of commands and events between a program and the agent: full ones, and the wakes of both sides.
#include "testing/tcp/two_programs.h"

namespace offpath::tcp {
namespace {

using Programs = TwoPrograms;

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

// A reader that sleeps after each read and acts only when it is woken: it misses nothing, and is woken once at most for
// the events of a round. Over a path of 50 us and 1 GB/s, with frames of 64 KiB as between two ends of one machine.
TEST(SleepingReader, OfAStreamIsWokenOnceForARound) {
  constexpr std::uint64_t mebibyte = 1 << 20, bytes = 16 * mebibyte;
  constexpr SocketOptions rings{.flows = 4, .send_bytes = mebibyte, .receive_bytes = mebibyte};
  TestNetworkOptions options;
  options.ports.segmentation_bytes = 65'536;
  options.ports.whole_segments = true;
  options.there.delay_ns = options.back.delay_ns = 50 * microsecond_ns;
  options.there.bytes_per_second = options.back.bytes_per_second = 1'000'000'000;
  TestPrograms world(options);
  SocketArea &client = *world.add(0, rings).area, &server = *world.add(1, rings).area;
  TcpService& service = world.ends[1].service;
  const auto listener = server.listen(8000, 1).value();
  world.run(millisecond_ns);
  const auto near = client.connect(TestPrograms::endpoint(1, 8000)).value();
  ASSERT_TRUE(world.run_until([&] { return client.take_in() && client.look(near)->connected; }, second_ns));
  world.run(millisecond_ns);
  server.take_in();
  const auto far = server.accept(listener).value();
  static_cast<void>(service.take_wakes());

  std::vector<std::byte> piece(128 << 10);
  std::uint64_t sent = 0, received = 0, wakes = 0;
  const std::uint64_t events_before = service.counters().events;
  bool sleeps = server.fall_asleep();
  const auto act = [&] {
    bool worked = client.take_in();
    while (sent < bytes) {
      const auto taken = client.send(near, Bytes(piece).first(std::min<std::uint64_t>(piece.size(), bytes - sent)));
      if (!taken) break;
      sent += *taken;
      worked = true;
    }
    const auto woken = service.take_wakes();
    EXPECT_LE(woken.size(), 1u);
    wakes += woken.size();
    if (sleeps && woken.empty()) return worked;
    server.take_in();
    while (const auto taken = server.receive(far, piece)) received += *taken;
    sleeps = server.fall_asleep();
    return true;
  };
  EXPECT_TRUE(world.run_until([&] { return received == bytes; }, second_ns, act)) << received;
  EXPECT_GE(wakes, 1u);
  EXPECT_LE(wakes, service.counters().events - events_before);
}

}  // namespace
}  // namespace offpath::tcp
