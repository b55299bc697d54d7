// Rings that grow: two programs on two agents, on one machine with them or behind links.
#include <sys/mman.h>

#include "testing/sanitized.h"
#include "testing/tcp/growing_rings.h"
#include "testing/tcp/linked_program.h"
#include "testing/tcp/two_programs.h"

namespace offpath::tcp {
namespace {

using wire::TcpCommand;
using wire::TcpCommandKind;
using wire::TcpWay;
namespace tcp_ring = wire::tcp_ring;
constexpr SocketOptions grows{
    .flows = 16, .send_bytes = first_bytes, .receive_bytes = first_bytes, .pool_bytes = 128 << 20},
    stays{.flows = 16, .send_bytes = first_bytes, .receive_bytes = first_bytes};

std::uint64_t pages_of(const TestProgram& program) {
  std::vector<unsigned char> pages((program.memory.size() + page_bytes - 1) / page_bytes);
  OFP_ASSERT(mincore(program.memory.data(), program.memory.size(), pages.data()) == 0);
  return static_cast<std::uint64_t>(std::ranges::count_if(pages, [](unsigned char page) { return page & 1; })) *
         page_bytes;
}

// Two programs that talk: both ends send `bytes`, in random pieces, and close.
class Talk {
 public:
  Talk(TestPrograms& world, TestProgram& server, TestProgram& client, std::uint64_t bytes, std::uint64_t seed)
      : world_(&world), server_(&server), client_(&client), bytes_(bytes), random_(seed) {
    listener_ = server.area->listen(port, 8).value();
    world.run(second_ns);
  }
  void connect() {
    ones.emplace_back(*client_->area, client_->area->connect(TestPrograms::endpoint(1, port)).value(), bytes_, true,
                      random_());
  }
  bool act() {
    bool worked = client_->area->take_in();
    worked |= server_->area->take_in();
    for (auto accepted = server_->area->accept(listener_); accepted; accepted = server_->area->accept(listener_)) {
      others.emplace_back(*server_->area, *accepted, bytes_, false, random_());
      worked = true;
    }
    for (auto* side : {&ones, &others})
      for (Talker& each : *side) worked |= each.act();
    for (const Talker& each : ones)
      if (const auto look = each.closed ? fail(Error::closed, "") : client_->area->look(each.handle))
        largest = std::max({largest, look->send_ring, look->receive_ring});
    return worked;
  }
  [[nodiscard]] bool done() const {
    const auto closed = [](const Talker& each) { return each.closed; };
    return others.size() == ones.size() && std::ranges::all_of(ones, closed) && std::ranges::all_of(others, closed);
  }
  void run(TimeNs limit = 3600 * second_ns) {
    ASSERT_TRUE(world_->run_until([&] { return done(); }, limit, [&] { return act(); }));
    for (const auto* side : {&ones, &others})
      for (const Talker& each : *side) {
        EXPECT_EQ(each.error, wire::TcpError::none);
        EXPECT_EQ(each.received, bytes_);
        EXPECT_EQ(each.wrong, 0u);
      }
  }

  std::list<Talker> ones, others;
  std::uint32_t largest = 0;  // ring of a client

 private:
  TestPrograms* world_;
  TestProgram *server_, *client_;
  std::uint64_t bytes_;
  std::mt19937_64 random_;
  SocketArea::Handle listener_;
};

void expect_all_given_back(TestPrograms& world) {
  world.run(10 * second_ns);
  for (TestPrograms::End& end : world.ends) {
    EXPECT_TRUE(end.ended.empty()) << end.ended.front().why.message;
    for (TestProgram& program : end.programs) program.area->take_in();
    for (const auto& program : end.service.programs()) {
      EXPECT_EQ(program.flows, 0u);
      EXPECT_EQ(program.lent_bytes, 0u);
    }
  }
}

TEST(LargerRings, BytesArriveInOrderWhileRingsGrow) {
  for (std::uint64_t seed = 1; seed <= fewer_if_sanitized(4); ++seed) {
    SCOPED_TRACE(seed);
    auto options = bad_network(seed);
    options.there.loss = options.back.loss = 0.001;
    TestPrograms world(options);
    TestProgram &server = world.add(1, grows), &client = world.add(0, grows);
    Talk talk(world, server, client, 1'500'000 + seed * 7919, seed);
    for (int i = 0; i < 3; ++i) talk.connect();
    talk.run();
    EXPECT_GT(world.ends[0].service.counters().rings_grown, 3u);
    EXPECT_GT(talk.largest, first_bytes);
    expect_all_given_back(world);
  }
}

TEST(LargerRings, MemoryIsBackWhenConnectionsAreClosed) {
  TestPrograms world(path(10 * millisecond_ns));
  TestProgram &server = world.add(1, grows), &client = world.add(0, grows);
  const std::uint64_t before = pages_of(client) + pages_of(server);
  for (int i = 0; i < 2; ++i) {
    Talk talk(world, server, client, 20'000'000, 1);
    talk.connect();
    talk.run();
    EXPECT_EQ(talk.largest, 4u << 20);
    expect_all_given_back(world);
    EXPECT_LE(pages_of(client) + pages_of(server), before + 16 * 2 * 2 * first_bytes) << i << ": of the first rings";
    server.area->close(0);  // the listener
    world.run(second_ns);
    server.area->take_in();
  }
}

constexpr std::uint64_t path_bytes_per_second = 12'500'000;

// One program streams to another over a path, as fast as it takes.
struct OneStream {
  OneStream(TimeNs delay_ns, const SocketOptions& options, bool to_server = true)
      : world(path(delay_ns, path_bytes_per_second)),
        server(*world.add(1, options).area),
        client(*world.add(0, options).area),
        listener(server.listen(port, 4).value()),
        to_server_(to_server) {
    world.run(second_ns);
    near_ = client.connect(TestPrograms::endpoint(1, port)).value();
  }
  // Until so many bytes have arrived since the beginning. False: not within this time.
  bool run_until(std::uint64_t bytes, TimeNs within) {
    return world.run_until([&] { return received >= bytes; }, within, [&] { return step(); });
  }

  TestPrograms world;
  SocketArea &server, &client;
  SocketArea::Handle listener;
  std::uint64_t received = 0;

 private:
  bool step() {
    bool worked = server.take_in();
    worked |= client.take_in();
    if (const auto accepted = server.accept(listener)) far_ = *accepted;
    if (!far_) return worked;
    SocketArea &from = to_server_ ? client : server, &to = to_server_ ? server : client;
    while (from.send(to_server_ ? near_ : *far_, bytes_)) worked = true;
    for (;;) {
      const auto taken = to.receive(to_server_ ? *far_ : near_, bytes_);
      if (!taken || *taken == 0) return worked;
      received += *taken;
      worked = true;
    }
  }

  bool to_server_;
  SocketArea::Handle near_{};
  std::optional<SocketArea::Handle> far_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(100'000);
};

// A path of 50 ms and 100 Mb/s takes 625 kB in a round trip.
TEST(LargerRings, FillALongPathThatFirstRingsDoNot) {
  const auto rate = [&](const SocketOptions& options) {
    OneStream stream(25 * millisecond_ns, options);
    EXPECT_FALSE(stream.run_until(UINT64_MAX, 10 * second_ns));
    const std::uint64_t begin = stream.received;
    EXPECT_FALSE(stream.run_until(UINT64_MAX, 10 * second_ns));
    return static_cast<double>(stream.received - begin) / 10 / path_bytes_per_second;
  };
  EXPECT_GT(rate(grows), 0.9);
  EXPECT_LT(rate(stays), 0.1);
}

// Rings that are large from the beginning are no faster: a larger one is there before the window has grown to its size.
TEST(LargerRings, DoNotHoldUpSlowStart) {
  constexpr SocketOptions large{.flows = 16, .send_bytes = 1 << 20, .receive_bytes = 1 << 20};
  for (const bool to_server : {true, false}) {
    const auto time_of = [&](const SocketOptions& options) {
      OneStream stream(10 * millisecond_ns, options, to_server);
      const TimeNs began = stream.world.now;
      EXPECT_TRUE(stream.run_until(1'000'000, 10 * second_ns));
      return static_cast<double>(stream.world.now - began);
    };
    EXPECT_LT(time_of(grows) / time_of(large), 1.05) << to_server;
  }
}

TEST(LargerRings, ConnectionsThatSayLittleKeepTheirFirstRings) {
  TestPrograms world(path(millisecond_ns));
  TestProgram &server = world.add(1, grows), &client = world.add(0, grows);
  Talk talk(world, server, client, 10, 1);
  for (int i = 0; i < 5; ++i) talk.connect();
  talk.run();
  EXPECT_EQ(talk.largest, first_bytes);
  EXPECT_EQ(world.ends[0].service.counters().rings_grown, 0u);
}

TEST(LargerRings, AreRefusedBeyondALimitAndFirstRingsServe) {
  TcpServiceLimits limits;
  limits.receive_bytes_of_user_max = 8 << 20;
  TestPrograms world(path(millisecond_ns), limits);
  TestProgram &server = world.add(1, grows), &client = world.add(0, grows);
  Talk talk(world, server, client, 1'500'000, 3);
  for (int i = 0; i < 6; ++i) talk.connect();
  talk.run();
  const TcpServiceCounters& counters = world.ends[0].service.counters();
  EXPECT_GT(counters.rings_grown, 0u);
  EXPECT_GT(counters.rings_refused, 0u);
  EXPECT_LT(counters.rings_refused, 600u) << "an advice that came to nothing is not repeated for a while";
  expect_all_given_back(world);
}

TEST(LargerRings, WithoutMemoryOfTheProgramFirstRingsServe) {
  TestPrograms world(path(millisecond_ns));
  SocketOptions little = grows;
  little.pool_bytes = channel::RingPool::word_bytes;
  TestProgram &server = world.add(1, little), &client = world.add(0, little);
  Talk talk(world, server, client, 1'500'000, 3);
  for (int i = 0; i < 6; ++i) talk.connect();
  talk.run();
  EXPECT_GT(world.ends[0].service.counters().rings_grown, 0u);
  expect_all_given_back(world);
}

TEST(LargerRings, OfAProgramThatDiesAreNobodysAnyMore) {
  for (std::uint64_t seed = 1; seed <= fewer_if_sanitized(4); ++seed) {
    SCOPED_TRACE(seed);
    TestPrograms world(path(millisecond_ns));
    TestProgram &server = world.add(1, grows), &client = world.add(0, grows);
    Talk talk(world, server, client, 50'000'000, seed);
    for (int i = 0; i < 3; ++i) talk.connect();
    world.run_until([&] { return talk.done(); }, static_cast<TimeNs>(10 + 5 * seed) * millisecond_ns,
                    [&] { return talk.act(); });
    world.ends[0].service.close(client.number, world.now);
    talk.ones.clear();
    ASSERT_TRUE(world.run_until(
        [&] { return std::ranges::all_of(talk.others, [](const Talker& each) { return each.closed; }); },
        60 * second_ns, [&] { return talk.act(); }));
    for (const Talker& each : talk.others) EXPECT_EQ(each.wrong, 0u);
    expect_all_given_back(world);
  }
}

// An idle connection's grown ring gives its pages back as any other (connections/area/idle_memory.h).
TEST(LargerRings, OfAnIdleConnectionGiveTheirPagesBack) {
  TestPrograms world(path(millisecond_ns));
  TestProgram &server = world.add(1, grows), &client = world.add(0, grows);
  const auto listener = server.area->listen(port, 4).value();
  world.run(second_ns);
  const auto near = client.area->connect(TestPrograms::endpoint(1, port)).value();
  std::optional<SocketArea::Handle> far;
  std::uint64_t sent = 0, received = 0, wrong = 0;
  std::vector<std::byte> bytes(50'000);
  const auto stream = [&](std::uint64_t end) {
    ASSERT_TRUE(world.run_until([&] { return received == end; }, 60 * second_ns,
                                [&] {
                                  if (const auto accepted = server.area->accept(listener)) far = *accepted;
                                  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = stream_byte(1, sent + i);
                                  const auto out = client.area->send(
                                      near, Bytes(bytes).first(std::min<std::uint64_t>(bytes.size(), end - sent)));
                                  if (out) sent += *out;
                                  const auto in = far ? server.area->receive(*far, bytes) : fail(Error::closed, "");
                                  if (!in) return out && *out > 0;
                                  for (std::size_t i = 0; i < *in; ++i)
                                    wrong += bytes[i] != stream_byte(1, received + i);
                                  received += *in;
                                  return true;
                                }));
  };
  stream(8'000'000);
  ASSERT_GT(server.area->look(*far)->receive_ring, 256u << 10);
  const std::uint64_t busy = pages_of(server);
  for (int i = 0; i < 4; ++i) {
    world.run(second_ns);
    static_cast<void>(server.area->give_back(world.now));
    world.run(100 * millisecond_ns);
    server.area->take_in();
  }
  EXPECT_LT(pages_of(server), busy - (128 << 10));
  stream(10'000'000);
  EXPECT_EQ(wrong, 0u);
}

// ---- links

TEST(LargerRings, GrowOverLinks) {
  for (std::uint64_t seed = 1; seed <= fewer_if_sanitized(4); ++seed) {
    SCOPED_TRACE(seed);
    auto options = bad_network(seed);
    options.there.loss = options.back.loss = 0.001;
    LinkedPrograms world(options);
    LinkedProgram& linked = world.add_linked(0, static_cast<TimeNs>(3 * seed * seed) * microsecond_ns, seed, grows);
    if (seed % 2 == 0) linked.complete_late(100 * microsecond_ns);
    TestProgram& server = world.add(1, grows);
    Talk talk(world, server, linked.program(), 1'000'000 + seed * 7919, seed);
    for (int i = 0; i < 3; ++i) talk.connect();
    talk.run();
    ASSERT_TRUE(linked.status()) << linked.status().error().message;
    EXPECT_GT(world.ends[0].service.counters().rings_grown, 3u);
    EXPECT_GT(talk.largest, first_bytes);
    expect_all_given_back(world);
  }
}

TEST(LargerRings, AreRefusedOverLinks) {
  TcpServiceLimits limits;
  limits.receive_bytes_of_user_max = 8 << 20;
  LinkedPrograms world(path(millisecond_ns), limits);
  LinkedProgram& linked = world.add_linked(0, 20 * microsecond_ns, 5, grows);
  linked.complete_late(200 * microsecond_ns);
  Talk talk(world, world.add(1, grows), linked.program(), 1'000'000, 5);
  for (int i = 0; i < 6; ++i) talk.connect();
  talk.run();
  EXPECT_GT(world.ends[0].service.counters().rings_refused, 0u);
  expect_all_given_back(world);
}

}  // namespace
}  // namespace offpath::tcp
