// Rings that grow: two programs on two agents, on one machine with them or behind links; what hostile programs name.
#include <sys/mman.h>

#include "testing/sanitized.h"
#include "testing/tcp/linked_program.h"
#include "testing/tcp/two_programs.h"

namespace offpath::tcp {
namespace {

using wire::TcpCommand;
using wire::TcpCommandKind;
using wire::TcpWay;
namespace tcp_ring = wire::tcp_ring;
constexpr std::uint16_t port = 8000;
constexpr std::uint32_t first_bytes = 16 << 10;
constexpr SocketOptions grows{
    .flows = 16, .send_bytes = first_bytes, .receive_bytes = first_bytes, .pool_bytes = 128 << 20},
    stays{.flows = 16, .send_bytes = first_bytes, .receive_bytes = first_bytes};

TestNetworkOptions path(TimeNs one_way_ns, std::uint64_t bytes_per_second = 0) {
  TestNetworkOptions options;
  options.there.delay_ns = options.back.delay_ns = one_way_ns;
  options.there.bytes_per_second = options.back.bytes_per_second = bytes_per_second;
  options.stack.time_wait_ns = options.stack.fin_wait_ns = second_ns;
  return options;
}

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

// A path of 50 ms and 100 Mb/s takes 625 kB in a round trip.
TEST(LargerRings, FillALongPathThatFirstRingsDoNot) {
  constexpr std::uint64_t bytes_per_second = 12'500'000;
  const auto rate = [&](const SocketOptions& options) {
    TestPrograms world(path(25 * millisecond_ns, bytes_per_second));
    TestProgram &server = world.add(1, options), &client = world.add(0, options);
    const auto listener = server.area->listen(port, 4).value();
    world.run(second_ns);
    const auto near = client.area->connect(TestPrograms::endpoint(1, port)).value();
    std::optional<SocketArea::Handle> far;
    std::uint64_t received = 0;
    std::vector<std::byte> bytes(100'000);
    const auto stream = [&] {
      bool worked = server.area->take_in();
      worked |= client.area->take_in();
      if (const auto accepted = server.area->accept(listener)) far = *accepted;
      while (client.area->send(near, bytes)) worked = true;
      while (far) {
        const auto taken = server.area->receive(*far, bytes);
        if (!taken || *taken == 0) break;
        received += *taken;
        worked = true;
      }
      return worked;
    };
    world.run_until([] { return false; }, 10 * second_ns, stream);
    const std::uint64_t begin = received;
    world.run_until([] { return false; }, 10 * second_ns, stream);
    return static_cast<double>(received - begin) / 10 / bytes_per_second;
  };
  EXPECT_GT(rate(grows), 0.9);
  EXPECT_LT(rate(stays), 0.1);
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

// An idle connection's grown ring gives its pages back as any other (socket_memory.cc).
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

// ---- hostile programs

// A client that answers no advice by itself, and has been given one for each direction.
class HostileRings : public testing::Test {
 protected:
  HostileRings() {
    listener = server.area->listen(port, 4).value();
    world.run(second_ns);
    near = client.area->connect(TestPrograms::endpoint(1, port)).value();
    kept = other.area->connect(TestPrograms::endpoint(1, port)).value();
    world.run(second_ns);
    flows = {server.area->accept(listener).value(), server.area->accept(listener).value()};
    std::vector<std::byte> bytes(10'000);
    const TimeNs until = world.now + 100 * millisecond_ns;
    world.run_until([&] { return world.now >= until; }, second_ns,
                    [&] {
                      bool worked = server.area->take_in();
                      worked |= client.area->take_in();
                      for (const auto flow : flows) {
                        while (server.area->receive(flow, bytes)) worked = true;
                        if (sent < 200'000)
                          if (const auto taken = server.area->send(flow, bytes)) worked = true;
                      }
                      if (sent < 200'000)
                        if (const auto taken = client.area->send(near, bytes)) sent += *taken;
                      while (const auto taken = client.area->receive(near, bytes)) {
                        read += *taken;
                        worked = true;
                      }
                      return worked;
                    });
    world.run(second_ns);
    while (const auto taken = client.area->receive(near, bytes)) read += *taken;
    world.run(second_ns);
  }
  TcpCommand good(TcpWay way) const {
    TcpCommand command{};
    command.kind = TcpCommandKind::replace;
    command.handle = near;
    command.flags = static_cast<std::uint16_t>(way);
    command.position = way == TcpWay::out ? sent : read + first_bytes;
    command.receive_at = client.layout.bytes - (256 << 10) - (way == TcpWay::out ? 0 : 64 << 10);
    command.receive_bytes = 64 << 10;
    return command;
  }
  TcpCommand about(TcpCommandKind kind, std::uint64_t position = 0) const {
    TcpCommand command{};
    command.kind = kind;
    command.handle = near;
    command.position = position;
    return command;
  }
  // Why the agent ended the program for it; empty: it did not.
  std::string ends(const TcpCommand& command) {
    client.write_command(command);
    world.run(100 * millisecond_ns);
    return world.ends[0].ended.empty() ? "" : world.ends[0].ended[0].why.message;
  }
  // Of the client's connection, whatever it has read.
  std::uint64_t received() const {
    for (const auto& each : world.ends[0].service.connections(8))
      if (each.program == client.number) return each.received;
    return 0;
  }
  TcpCommand first(TcpWay way) const {
    TcpCommand command = good(way);
    command.position = way == TcpWay::out ? sent : read;
    const std::uint64_t rings = client.layout.bytes - 64 * 2 * first_bytes;
    command.receive_at = rings + near * 2 * first_bytes + (way == TcpWay::out ? 0 : first_bytes);
    command.receive_bytes = first_bytes;
    return command;
  }
  // Another connection of the client fills the ring of its events.
  void fill_events() {
    const auto busy = client.area->connect(TestPrograms::endpoint(1, port)).value();
    world.run(second_ns);
    client.area->take_in();
    server.area->take_in();
    const auto flow = server.area->accept(listener).value();
    const std::byte one{1};
    const auto posted = [&] {
      return *reinterpret_cast<const std::uint64_t*>(client.memory.data() + wire::tcp_word::events);
    };
    const std::uint64_t end = posted() + client.layout.event_slots;
    for (std::uint32_t i = 0; i < 4 * client.layout.event_slots && posted() != end; ++i) {
      ASSERT_TRUE(server.area->send(flow, Bytes(&one, 1)));
      world.run(50 * millisecond_ns);
      server.area->take_in();
    }
    ASSERT_NE(busy, near);
    ASSERT_EQ(posted(), end);
  }
  void expect_others_unharmed(std::size_t programs = 1) {
    world.run(second_ns);
    EXPECT_TRUE(other.area->look(kept)->connected);
    EXPECT_EQ(world.ends[0].service.programs().size(), programs);
  }

  TestPrograms world{path(20 * millisecond_ns)};
  // Handles that nobody uses: their rings are memory that a program may name.
  TestProgram &client = world.add(0, {64, first_bytes, first_bytes}), &other = world.add(0), &server = world.add(1);
  SocketArea::Handle near = 0, kept = 0, listener = 0;
  std::vector<SocketArea::Handle> flows{};
  std::uint64_t sent = 0, read = 0;
};

TEST_F(HostileRings, AreTakenIfTheyAreGood) {
  ASSERT_GT(sent, first_bytes) << "the first ring went round";
  for (const TcpWay way : {TcpWay::out, TcpWay::in}) EXPECT_EQ(ends(good(way)), "");
  EXPECT_EQ(world.ends[0].service.counters().rings_grown, 2u);
}

TEST_F(HostileRings, AreRefusedWithoutAnAdvice) {
  EXPECT_EQ(ends(good(TcpWay::out)), "");
  TcpCommand again = good(TcpWay::out);
  again.receive_at = client.layout.bytes - (1 << 20);
  again.receive_bytes = 256 << 10;
  EXPECT_EQ(ends(again), "");
  EXPECT_EQ(world.ends[0].service.counters().rings_grown, 1u);
  EXPECT_EQ(world.ends[0].service.programs()[0].lent_bytes, 64u << 10);
  expect_others_unharmed(2);
}

TEST_F(HostileRings, EndTheirProgramIfTheyOverlap) {
  EXPECT_EQ(ends(good(TcpWay::out)), "");
  TcpCommand over = good(TcpWay::in);
  over.receive_at = good(TcpWay::out).receive_at + wire::tcp_ring_block_bytes;
  over.receive_bytes = 32 << 10;
  EXPECT_NE(ends(over).find("where another one is"), std::string::npos);
  expect_others_unharmed();
}

// On its own machine the agent does not charge a first ring for sending, but no larger ring may lie over it.
TEST_F(HostileRings, EndTheirProgramOverAFirstRingForSending) {
  TcpCommand over = good(TcpWay::in);
  over.receive_at = client.layout.bytes - 64 * 2 * first_bytes - (48 << 10);  // ends with the first ring of handle 0
  ASSERT_EQ(near, 0u);
  EXPECT_NE(ends(over).find("where another one is"), std::string::npos);
  expect_others_unharmed();
}

TEST_F(HostileRings, EndTheirProgramUnderAFirstRing) {
  const TcpCommand larger = good(TcpWay::out);
  EXPECT_EQ(ends(larger), "");
  TcpCommand first = about(TcpCommandKind::connect);
  first.handle = near + 1;
  first.receive_at = larger.receive_at;
  first.send_at = larger.receive_at - first_bytes;
  first.send_bytes = first.receive_bytes = first_bytes;
  EXPECT_NE(ends(first).find("where a larger one is"), std::string::npos);
  expect_others_unharmed();
}

// A program can make the agent wait for the lock of its file: only the program removes pages, and until it ends it is
// charged for what the agent may have written to.
TEST_F(HostileRings, StayChargedAndAreNotTouchedOnceTheyAreReturned) {
  const TcpCommand larger = good(TcpWay::in);
  EXPECT_EQ(ends(larger), "");
  const auto status = [&] { return world.ends[0].service.programs()[0]; };
  const std::uint64_t charged = status().receive_bytes;
  EXPECT_EQ(status().lent_bytes, 64u << 10);
  client.memory[larger.receive_at + 5000] = std::byte{7};
  EXPECT_EQ(ends(about(TcpCommandKind::abort)), "");
  EXPECT_EQ(status().lent_bytes, 0u);
  EXPECT_EQ(status().receive_bytes, charged);
  EXPECT_EQ(client.memory[larger.receive_at + 5000], std::byte{7});
}

// The event `gone` finds no room, and the program allows what it has read meanwhile.
TEST_F(HostileRings, ServeUntilTheProgramIsToldThatTheyAreGone) {
  fill_events();
  EXPECT_EQ(ends(good(TcpWay::in)), "");
  EXPECT_EQ(ends(about(TcpCommandKind::abort)), "");
  EXPECT_EQ(ends(about(TcpCommandKind::allow, read + (64 << 10))), "");
  EXPECT_EQ(world.ends[0].service.programs()[0].lent_bytes, 0u);
}

// The same, and the program leaves its larger rings meanwhile.
TEST_F(HostileRings, AreNotLeftUntilTheProgramIsToldThatTheyAreGone) {
  fill_events();
  for (const TcpWay way : {TcpWay::out, TcpWay::in}) EXPECT_EQ(ends(good(way)), "");
  EXPECT_EQ(ends(about(TcpCommandKind::abort)), "");
  EXPECT_EQ(world.ends[0].service.programs()[0].lent_bytes, 0u);
  for (const TcpWay way : {TcpWay::out, TcpWay::in}) EXPECT_EQ(ends(first(way)), "");
}

// ---- hostile programs, whose flow has a larger ring

class HostileFirstRings : public HostileRings {
 protected:
  HostileFirstRings() {
    for (const TcpWay way : {TcpWay::out, TcpWay::in}) EXPECT_EQ(ends(good(way)), "");
    // More comes than the first ring has room for, so that it is free.
    static_cast<void>(server.area->send(flows[0], std::vector<std::byte>(30'000)));
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(ends(about(TcpCommandKind::allow, received() + (64 << 10))), "");
      world.run(second_ns);
    }
    EXPECT_GT(received(), read + first_bytes);
    read = received();
  }
  std::string shut() { return ends(about(TcpCommandKind::shut)); }
  std::uint64_t lent() const { return world.ends[0].service.programs()[0].lent_bytes; }
};

TEST_F(HostileFirstRings, AreTakenIfTheLargerOnesAreEmpty) {
  EXPECT_EQ(lent(), 128u << 10);
  EXPECT_EQ(ends(first(TcpWay::out)), "");
  EXPECT_EQ(lent(), 64u << 10);
  EXPECT_EQ(shut(), "");
  EXPECT_EQ(ends(first(TcpWay::in)), "");
  EXPECT_EQ(lent(), 0u);
  EXPECT_EQ(world.ends[0].service.counters().rings_shrunk, 2u);
  EXPECT_EQ(ends(about(TcpCommandKind::allow, read + first_bytes)), "");
  EXPECT_NE(ends(about(TcpCommandKind::allow, read + first_bytes + 1)).find("its ring has 16384"), std::string::npos);
}

// Bytes that go into the larger ring have not come, and those before it have been read.
TEST_F(HostileRings, FirstOnesAreTakenBeforeTheLargerOnesAreInUse) {
  EXPECT_EQ(ends(good(TcpWay::in)), "");
  EXPECT_EQ(world.ends[0].service.programs()[0].lent_bytes, 64u << 10);
  EXPECT_EQ(ends(about(TcpCommandKind::shut)), "");
  TcpCommand command = good(TcpWay::in);
  command.position = received();
  command.receive_at = client.layout.bytes - (64 - near) * 2 * first_bytes + first_bytes;
  command.receive_bytes = first_bytes;
  EXPECT_EQ(ends(command), "");
  EXPECT_EQ(world.ends[0].service.programs()[0].lent_bytes, 0u);
  EXPECT_EQ(world.ends[0].service.counters().rings_shrunk, 1u);
  expect_others_unharmed(2);
}

TEST_F(HostileFirstRings, EndTheirProgramWhileTheWindowIsOpen) {
  EXPECT_NE(ends(first(TcpWay::in)).find("is in use"), std::string::npos);
  expect_others_unharmed();
}

TEST_F(HostileFirstRings, EndTheirProgramOnceTheWindowIsOpenAgain) {
  EXPECT_EQ(shut(), "");
  EXPECT_EQ(ends(about(TcpCommandKind::allow, read + 1024)), "");
  EXPECT_NE(ends(first(TcpWay::in)).find("is in use"), std::string::npos);
  expect_others_unharmed();
}

TEST_F(HostileFirstRings, EndTheirProgramWithBytesUnacknowledged) {
  Impairments gone;
  gone.loss = 1;
  world.ends[0].port->set(gone, gone);
  EXPECT_EQ(ends(about(TcpCommandKind::offer, sent + 10)), "");
  TcpCommand command = first(TcpWay::out);
  command.position += 10;
  EXPECT_NE(ends(command).find("is in use"), std::string::npos);
  world.ends[0].port->set({}, {});
  expect_others_unharmed();
}

TEST_F(HostileFirstRings, EndTheirProgramAtAnotherPosition) {
  TcpCommand command = first(TcpWay::out);
  --command.position;
  EXPECT_NE(ends(command).find("is in use"), std::string::npos);
  expect_others_unharmed();
}

// Another flow's ring, a part of the larger one, or a larger first one.
TEST_F(HostileFirstRings, EndTheirProgramIfTheyAreOthers) {
  TcpCommand command = first(TcpWay::out);
  command.receive_at += 2 * first_bytes;
  EXPECT_NE(ends(command).find("after one of 65536 bytes"), std::string::npos);
  expect_others_unharmed();
}
TEST_F(HostileFirstRings, EndTheirProgramInTheLargerOne) {
  TcpCommand command = first(TcpWay::out);
  command.receive_at = good(TcpWay::out).receive_at;
  EXPECT_NE(ends(command).find("after one of 65536 bytes"), std::string::npos);
  expect_others_unharmed();
}
TEST_F(HostileFirstRings, EndTheirProgramWithAnotherSize) {
  TcpCommand command = first(TcpWay::out);
  command.receive_bytes *= 2;
  EXPECT_NE(ends(command).find("after one of 65536 bytes"), std::string::npos);
  expect_others_unharmed();
}

// It keeps its larger rings, its window stays shut, or it says all of it again and again: other flows are not
// concerned, and no more memory is lent than it had.
TEST_F(HostileFirstRings, StayItsOwnAffair) {
  EXPECT_EQ(shut(), "");
  EXPECT_EQ(ends(first(TcpWay::in)), "");
  for (int i = 0; i < 100; ++i) EXPECT_EQ(shut(), "");
  EXPECT_EQ(lent(), 64u << 10);
  const std::byte one{1};
  ASSERT_TRUE(server.area->send(flows[0], Bytes(&one, 1)));
  world.run(10 * second_ns);
  EXPECT_EQ(ends(about(TcpCommandKind::abort)), "");
  EXPECT_EQ(lent(), 0u);
  expect_others_unharmed(2);
}

// The connection has ended, and the program does not know it yet.
TEST_F(HostileFirstRings, AreRefusedOnceTheConnectionIsGone) {
  EXPECT_EQ(shut(), "");
  client.write_command(about(TcpCommandKind::abort));
  client.write_command(first(TcpWay::out));
  EXPECT_EQ(ends(first(TcpWay::in)), "");
  EXPECT_EQ(lent(), 0u);
  expect_others_unharmed(2);
}

class HostileRing : public HostileRings, public testing::WithParamInterface<int> {};

TEST_P(HostileRing, EndsItsProgramAndNoOther) {
  const TcpWay way = GetParam() % 2 == 0 ? TcpWay::out : TcpWay::in;
  TcpCommand command = good(way);
  std::string why = "outside the area";
  switch (GetParam() / 2) {
    case 0:
      command.receive_at = client.layout.bytes - (32 << 10);
      break;
    case 1:
      command.receive_at = ~0ull - (16 << 10) + 1;
      break;
    case 2:
      command.receive_at = 0;  // over the commands
      break;
    case 3:
      command.receive_at -= 4096;  // in the middle of a block
      why = "after one of 16384 bytes";
      break;
    case 4:
      command.receive_bytes = 48 << 10;
      why = "powers of two";
      break;
    case 5:
      command.receive_bytes = first_bytes;  // no larger
      why = "after one of 16384 bytes";
      break;
    case 6:
      command.receive_bytes = 8 << 20;
      why = "powers of two from 1024 to 4194304";
      break;
    case 7:
      command.position += way == TcpWay::out ? 1 : 1 << 20;
      why = "a larger ring from byte";
      break;
    case 8:
      command.position -= 1;
      why = "a larger ring from byte";
      break;
    case 9:
      command.position = ~0ull;
      why = "a larger ring from byte";
      break;
    case 10:
      command.flags = 2;
      why = "for direction 2";
      break;
    case 11:
      command.handle = near + 1;  // no connection
      ASSERT_EQ(ends(command), "");
      EXPECT_EQ(world.ends[0].service.counters().rings_grown, 0u);
      return;
    default:
      break;
  }
  const std::string said = ends(command);
  EXPECT_NE(said.find(why), std::string::npos) << said;
  expect_others_unharmed();
}
INSTANTIATE_TEST_SUITE_P(Each, HostileRing, testing::Range(0, 24));

}  // namespace
}  // namespace offpath::tcp
