// Programs behind links at many paces, and streams over them by seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>

#include "tcp/area/area_mirror.h"
#include "testing/sanitized.h"
#include "testing/tcp/linked_program.h"

namespace offpath::tcp {
namespace {

constexpr std::uint16_t echo_port = 8000;

// How long the parts of an echo take.
struct Pace {
  TimeNs link, answer, spins, pause;  // link: a transfer, on average; pause: of the client, between two echoes
};

// A server behind a link, which sleeps when it has nothing to do for a while, and its client.
class LinkedServer : public testing::TestWithParam<Pace> {
 protected:
  void SetUp() override {
    listener = server().listen(echo_port, 4).value();
    world.run(millisecond_ns);
    near = client.area->connect(TestPrograms::endpoint(0, echo_port)).value();
    ASSERT_TRUE(world.run_until(
        [&] {
          if (const auto accepted = server().accept(listener)) far = *accepted;
          return client.area->look(near)->connected && far != 0;
        },
        second_ns));
  }
  SocketArea& server() { return *linked.program().area; }

  // One after the other. Returns how long a client waited for one, on average.
  TimeNs echo(std::size_t count) {
    std::vector<std::byte> bytes(64);
    std::size_t echoes = 0;
    TimeNs sends_at = world.now, answers_at = never, idle_since = world.now, sent_at = 0, waited = 0;
    bool asleep = false;
    std::size_t wakes = linked.wakes();
    while (echoes < count) {
      if (world.now >= sends_at) {
        EXPECT_TRUE(client.area->send(near, bytes));
        sent_at = std::exchange(sends_at, never);
      }
      if (client.area->receive(near, bytes)) {
        ++echoes;
        waited += world.now - sent_at;
        sends_at = world.now + GetParam().pause;
      }
      if (asleep && linked.wakes() != wakes) {
        asleep = false;
        idle_since = world.now;
        server().stay_awake();
      }
      if (!asleep && answers_at == never && server().receive(far, bytes)) answers_at = world.now + GetParam().answer;
      if (world.now >= answers_at) {
        EXPECT_TRUE(server().send(far, bytes));
        answers_at = never;
        idle_since = world.now;
      }
      if (!asleep && answers_at == never && world.now - idle_since >= GetParam().spins) {
        static_cast<void>(server().take_in());
        wakes = linked.wakes();
        asleep = server().fall_asleep();
      }
      world.run(step_ns);
    }
    return waited / static_cast<TimeNs>(count);
  }

  void rest() {
    world.run(second_ns);
    const std::uint64_t looks = linked.mirror().counters().looks;
    EXPECT_TRUE(linked.mirror().may_sleep());
    world.run(second_ns);
    EXPECT_EQ(linked.mirror().counters().looks, looks);
  }

  static constexpr TimeNs step_ns = 200;
  LinkedPrograms world{TestNetworkOptions{}};
  LinkedProgram& linked = world.add_linked(0, GetParam().link, 1);
  TestProgram& client = world.add(1);
  SocketArea::Handle listener = 0, near = 0, far = 0;
};

TEST_P(LinkedServer, AnEchoTakesThreeReadsAndTwoChainsOfWrites) {
  echo(50);
  const AreaMirrorCounters before = linked.mirror().counters();
  constexpr std::size_t count = 200;
  const TimeNs waited = echo(count);
  const AreaMirrorCounters after = linked.mirror().counters();
  EXPECT_EQ(after.fetches, before.fetches);
  EXPECT_LE(after.looks - before.looks, 3 * count);
  EXPECT_LE(after.chains - before.chains, 2 * count);
  EXPECT_LE(waited - GetParam().answer, 3 * GetParam().link + microsecond_ns) << "one delay in, two out";
  // Asleep after the last one, and nothing is read any more.
  rest();
}

INSTANTIATE_TEST_SUITE_P(Paces, LinkedServer,
                         testing::Values(Pace{2'000, 3'000, 20'000, 5'000}, Pace{2'000, 3'000, 20'000, 60'000},
                                         Pace{2'000, 200'000, 20'000, 5'000}, Pace{2'000, 3'000, 0, 60'000},
                                         Pace{2'000, 3'000, 1'000'000, 5'000}, Pace{20'000, 10'000, 20'000, 30'000},
                                         Pace{20'000, 10'000, 20'000, 100'000}, Pace{50'000, 30'000, 20'000, 60'000},
                                         Pace{20'000, 3'000, 20'000, 1'000'000}));

class LinkedSeeds : public testing::TestWithParam<std::uint64_t> {};

// Both programs linked, over links of any delay and a bad network between the agents.
TEST_P(LinkedSeeds, StreamsArriveWhole) {
  std::mt19937_64 random(GetParam());
  LinkedPrograms world{bad_network(GetParam())};
  const auto delay = [&] { return 500 + static_cast<TimeNs>(random() % (200 * microsecond_ns)); };
  LinkedProgram &client = world.add_linked(0, delay(), random()), &server = world.add_linked(1, delay(), random());
  const auto listener = server.program().area->listen(echo_port, 8).value();
  std::list<Talker> talkers;
  for (int i = 0; i < 4; ++i) {
    const auto handle = client.program().area->connect(TestPrograms::endpoint(1, echo_port)).value();
    talkers.emplace_back(*client.program().area, handle, random() % 500'000, true, random());
  }
  std::size_t accepted = 0;
  const auto act = [&] {
    bool worked = false;
    if (const auto handle = server.program().area->accept(listener)) {
      talkers.emplace_back(*server.program().area, *handle, random() % 500'000, false, random());
      ++accepted;
      worked = true;
    }
    for (Talker& each : talkers) worked |= each.act();
    return worked;
  };
  ASSERT_TRUE(world.run_until(
      [&] { return accepted == 4 && std::ranges::all_of(talkers, [](const Talker& each) { return each.closed; }); },
      600 * second_ns, act));
  for (const Talker& each : talkers) {
    EXPECT_EQ(each.wrong, 0u);
    EXPECT_EQ(each.error, wire::TcpError::none);
  }
  world.run(100 * second_ns);
  EXPECT_TRUE(client.status() && server.status());
  EXPECT_EQ(world.ends[0].service.programs()[0].flows + world.ends[1].service.programs()[0].flows, 0u);
  EXPECT_TRUE(client.mirror().may_sleep() && server.mirror().may_sleep());
}

INSTANTIATE_TEST_SUITE_P(Seeds, LinkedSeeds, testing::Range<std::uint64_t>(1, 1 + fewer_if_sanitized(8)));

}  // namespace
}  // namespace offpath::tcp
