// Idle flows that have larger rings get their first ones again: two programs on two agents, on one machine with them
// or behind links; hostile programs are in larger_rings_test.cc.
#include <sys/mman.h>

#include "testing/sanitized.h"
#include "testing/tcp/growing_rings.h"
#include "testing/tcp/linked_program.h"
#include "testing/tcp/two_programs.h"

namespace offpath::tcp {
namespace {

constexpr SocketOptions pooled{
    .flows = 64, .send_bytes = first_bytes, .receive_bytes = first_bytes, .pool_bytes = 128 << 20};

// A program's end of a flow: sends bytes that say where they are, and looks at those of the other.
struct End {
  TestProgram* program;
  SocketArea::Handle handle = 0;
  std::uint64_t name, sent = 0, to_send = 0, read = 0;
  std::size_t wrong = 0;

  bool act(std::uint64_t others_name) {
    bool worked = false;
    if (sent < to_send) {
      std::vector<std::byte> bytes(std::min<std::uint64_t>(to_send - sent, 30'000));
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = stream_byte(name, sent + i);
      if (const auto taken = program->area->send(handle, bytes)) sent += *taken, worked = true;
    }
    std::vector<std::byte> bytes(30'000);
    while (const auto taken = program->area->receive(handle, bytes)) {
      if (*taken == 0) break;
      for (std::size_t i = 0; i < *taken; ++i) wrong += bytes[i] != stream_byte(others_name, read + i);
      read += *taken;
      worked = true;
    }
    return worked;
  }
  [[nodiscard]] SocketArea::Look look() const { return program->area->look(handle).value(); }
  [[nodiscard]] bool has_first_rings() const {
    return look().send_ring == first_bytes && look().receive_ring == first_bytes;
  }
};

class Conversation {
 public:
  Conversation(TestPrograms& world, TestProgram& server, TestProgram& client) : world_(&world) {
    far.program = &server;
    near.program = &client;
    near.name = 1;
    far.name = 2;
    listener_ = server.area->listen(next_port_, 1).value();
    world.run(second_ns);
    near.handle = client.area->connect(TestPrograms::endpoint(1, next_port_++)).value();
    bool accepted = false;
    OFP_ASSERT(world.run_until([&] { return accepted && near.look().connected; }, 100 * second_ns,
                               [&] {
                                 const auto taken = server.area->accept(listener_);
                                 if (taken) far.handle = *taken;
                                 accepted |= taken.has_value();
                                 return client.area->take_in() || taken.has_value();
                               }));
  }
  bool act() {
    bool worked = near.program->area->take_in();
    worked |= far.program->area->take_in();
    worked |= near.act(far.name);
    return far.act(near.name) || worked;
  }
  void carry(std::uint64_t there, std::uint64_t back) {
    near.to_send += there;
    far.to_send += back;
    ASSERT_TRUE(world_->run_until([&] { return far.read == near.to_send && near.read == far.to_send; },
                                  3600 * second_ns, [&] { return act(); }));
    ASSERT_EQ(near.wrong + far.wrong, 0u);
  }
  // Nothing is said, and both programs give memory back as they do when they sleep. Ends amid the last time.
  void rest(TimeNs duration) {
    for (const TimeNs end = world_->now + duration; world_->now < end;) {
      world_->run_until([] { return false; }, second_ns, [&] { return act(); });
      for (End* each : {&near, &far}) more = each->program->area->give_back(world_->now);
    }
  }

  End near{}, far{};
  bool more = false;

 private:
  TestPrograms* world_;
  SocketArea::Handle listener_;
  static inline std::uint16_t next_port_ = port;
};

TcpService::ProgramStatus status(TestPrograms& world, std::uint32_t end) {
  return world.ends[end].service.programs().at(0);
}

TEST(FirstRings, AreThoseOfIdleFlowsAgain) {
  TestPrograms world(path(10 * millisecond_ns));
  TestProgram &server = world.add(1, pooled), &client = world.add(0, pooled);
  Conversation talk(world, server, client);
  for (int i = 0; i < 3; ++i) {
    talk.carry(8'000'000, 8'000'000);
    for (const End* each : {&talk.near, &talk.far}) {
      EXPECT_GE(each->look().send_ring, 1u << 20);
      EXPECT_GE(each->look().receive_ring, 1u << 20);
      EXPECT_TRUE(each->program->area->uses_pool());
    }
    EXPECT_GE(status(world, 0).lent_bytes, 2u << 20);
    talk.rest(8 * second_ns);
    EXPECT_FALSE(talk.near.has_first_rings() || talk.far.has_first_rings()) << "it may be a pause";
    EXPECT_TRUE(talk.more);
    talk.rest(8 * second_ns);
    EXPECT_TRUE(talk.near.has_first_rings() && talk.far.has_first_rings());
    for (std::uint32_t end = 0; end < 2; ++end) {
      EXPECT_EQ(status(world, end).lent_bytes, 0u);
      EXPECT_EQ(world.ends[end].service.counters().rings_shrunk, 2u * (static_cast<unsigned>(i) + 1));
      EXPECT_EQ(world.ends[end].stack->counters().retransmitted, 0u);
    }
    EXPECT_FALSE(client.area->uses_pool());
    EXPECT_FALSE(talk.more);
    talk.carry(10, 10);
  }
  for (auto& end : world.ends) EXPECT_TRUE(end.ended.empty());
}

TEST(FirstRings, ComeWithoutLossWhereAnInitialWindowFits) {
  TestPrograms world(path(10 * millisecond_ns));
  TestProgram &server = world.add(1, pooled), &client = world.add(0, pooled);
  Conversation talk(world, server, client);
  talk.carry(8'000'000, 0);
  talk.rest(20 * second_ns);
  ASSERT_TRUE(talk.far.has_first_rings());
  talk.carry(8'000'000, 0);
  EXPECT_EQ(world.ends[0].stack->counters().retransmitted, 0u);
}

TEST(FirstRings, BytesArriveInOrderWhileRingsShrinkAndGrow) {
  for (std::uint64_t seed = 1; seed <= fewer_if_sanitized(6); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    auto options = bad_network(seed);
    options.there.loss = options.back.loss = 0.001;
    TestPrograms world(options);
    TestProgram &server = world.add(1, pooled), &client = world.add(0, pooled);
    Conversation talk(world, server, client);
    for (int i = 0; i < 15; ++i) {
      talk.carry(random() % 600'000, random() % 600'000);
      talk.rest(static_cast<TimeNs>(random() % 2 == 0 ? 13 : random() % 12) * second_ns);
      // Both ends speak while their programs ask for first rings, or before they have been told of the answer.
      for (End* each : {&talk.near, &talk.far})
        if (random() % 2 == 0) {
          each->to_send += random() % 50'000;
          static_cast<void>(each->act(3 - each->name));
        }
      world.run(static_cast<TimeNs>(random() % 20'000) * microsecond_ns);
      if (random() % 2 == 0) client.area->take_in();
      world.run(static_cast<TimeNs>(random() % 20'000) * microsecond_ns);
    }
    talk.carry(100, 100);
    for (auto& end : world.ends) {
      EXPECT_TRUE(end.ended.empty()) << end.ended.front().why.message;
      EXPECT_GT(end.service.counters().rings_shrunk, 3u);
      EXPECT_GE(end.service.counters().rings_grown, end.service.counters().rings_shrunk);
    }
  }
}

TEST(FirstRings, ComeAgainOverLinks) {
  for (std::uint64_t seed = 1; seed <= fewer_if_sanitized(4); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    auto options = bad_network(seed);
    options.there.loss = options.back.loss = 0.001;
    LinkedPrograms world(options);
    LinkedProgram& linked = world.add_linked(0, static_cast<TimeNs>(3 * seed * seed) * microsecond_ns, seed, pooled);
    if (seed % 2 == 0) linked.complete_late(100 * microsecond_ns);
    TestProgram& server = world.add(1, pooled);
    Conversation talk(world, server, linked.program());
    for (int i = 0; i < 8; ++i) {
      talk.carry(random() % 600'000, random() % 600'000);
      talk.rest(static_cast<TimeNs>(random() % 16) * second_ns);
    }
    talk.rest(16 * second_ns);
    EXPECT_TRUE(talk.near.has_first_rings());
    talk.carry(100'000, 100'000);
    ASSERT_TRUE(linked.status()) << linked.status().error().message;
    EXPECT_TRUE(world.ends[0].ended.empty());
    EXPECT_GT(world.ends[0].service.counters().rings_shrunk, 1u);
  }
}

TEST(FirstRings, AreNotThoseOfFlowsWithBytesUnreadOrUnacknowledged) {
  TestPrograms world(path(10 * millisecond_ns));
  TestProgram &server = world.add(1, pooled), &client = world.add(0, pooled);
  Conversation talk(world, server, client);
  talk.carry(2'000'000, 2'000'000);
  const std::byte one{static_cast<unsigned char>(stream_byte(talk.near.name, talk.near.sent))};
  ASSERT_TRUE(client.area->send(talk.near.handle, Bytes(&one, 1)));
  for (int i = 0; i < 20; ++i) {
    world.run(second_ns);
    static_cast<void>(server.area->give_back(world.now));
  }
  server.area->take_in();
  EXPECT_GT(talk.far.look().receive_ring, first_bytes) << "a byte is unread";
  EXPECT_GT(talk.far.look().send_ring, first_bytes);
  talk.near.sent = talk.near.to_send += 1;
  talk.carry(0, 0);

  Impairments gone;
  gone.loss = 1;
  world.ends[0].port->set(gone, gone);
  talk.near.to_send += 10;
  for (int i = 0; i < 15; ++i) {
    world.run_until([] { return false; }, second_ns, [&] { return talk.act(); });
    static_cast<void>(client.area->give_back(world.now));
  }
  EXPECT_GT(talk.near.look().send_ring, first_bytes) << "bytes are unacknowledged";
  world.ends[0].port->set({}, {});
  talk.carry(0, 0);
  talk.rest(16 * second_ns);
  for (const End* each : {&talk.near, &talk.far}) {
    EXPECT_EQ(each->look().send_ring, first_bytes) << each->name;
    EXPECT_EQ(each->look().receive_ring, first_bytes) << each->name;
  }
}

// Many flows have taken most of the pool: those that rest give it to others soon.
TEST(FirstRings, ComeSoonWhereThePoolIsShort) {
  TestPrograms world(path(millisecond_ns));
  SocketOptions little = pooled;
  little.pool_bytes = channel::RingPool::word_bytes;
  TestProgram &server = world.add(1, pooled), &client = world.add(0, little);
  std::list<Conversation> talks;
  for (int i = 0; i < 30 && status(world, 0).lent_bytes <= little.pool_bytes / 4 * 3; ++i)
    talks.emplace_back(world, server, client).carry(400'000, 400'000);
  ASSERT_GT(status(world, 0).lent_bytes, little.pool_bytes / 4 * 3);
  talks.back().rest(5 * second_ns);
  EXPECT_EQ(status(world, 0).lent_bytes, 0u);
  EXPECT_GT(status(world, 1).lent_bytes, 0u) << "there, memory is not short";
  for (Conversation& each : talks) each.carry(10'000, 10'000);
}

}  // namespace
}  // namespace offpath::tcp
