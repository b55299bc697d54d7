// Memory that programs' connections take, and give back: their areas, their rings, their users' limits.
#include <sys/mman.h>
#include <unistd.h>

#include "testing/tcp/two_programs.h"

namespace offpath::tcp {
namespace {

using wire::TcpError;
using Programs = TwoPrograms;

// Pages of rings that were read are returned to the system.
class MemoryOfPrograms : public Programs {
 protected:
  explicit MemoryOfPrograms(std::uint64_t link = 0) {
    reinterpret_cast<wire::TcpAgentLine*>(reader.memory.data() + wire::tcp_word::agent_line)->linked = link;
    reader.area->spread();
    listener = writer.area->listen(port, 4).value();
    world.run(second_ns);
    near = reader.area->connect(TestPrograms::endpoint(1, port)).value();
    EXPECT_TRUE(world.run_until([&] { return accepted(); }, 10 * second_ns));
  }
  bool accepted() {
    const auto taken = writer.area->accept(listener);
    if (taken) far = *taken;
    return taken.has_value();
  }
  // Sends through the ring several times, and reads everything.
  void stream(std::uint64_t bytes) {
    std::vector<std::byte> out(20'000), in(20'000);
    const std::uint64_t end = read + bytes;
    world.run_until(
        [&] {
          for (std::uint64_t left = end - sent; left > 0; left = end - sent) {
            const std::size_t part = std::min<std::uint64_t>(left, out.size());
            for (std::size_t i = 0; i < part; ++i) out[i] = stream_byte(1, sent + i);
            const auto taken = writer.area->send(far, Bytes(out).first(part));
            if (!taken) break;
            sent += *taken;
          }
          while (const auto taken = reader.area->receive(near, in)) {
            for (std::size_t i = 0; i < *taken; ++i) wrong += in[i] != stream_byte(1, read + i);
            read += *taken;
          }
          return read == end;
        },
        100 * second_ns);
    ASSERT_EQ(read, end);
  }
  std::uint64_t there() const {
    std::vector<unsigned char> pages((reader.memory.size() + page_bytes - 1) / page_bytes);
    OFP_ASSERT(mincore(reader.memory.data(), reader.memory.size(), pages.data()) == 0);
    return static_cast<std::uint64_t>(std::ranges::count_if(pages, [](unsigned char page) { return page & 1; })) *
           page_bytes;
  }
  bool give_back() {
    world.run(second_ns);
    return reader.area->give_back(world.now);
  }

  static constexpr std::uint32_t ring_bytes = 1 << 20;
  TestProgram &reader = world.add(0, {16, 65'536, ring_bytes}), &writer = world.add(1, {16, 65'536, 65'536});
  std::uint64_t sent = 0, read = 0;
  std::size_t wrong = 0;
};

TEST_F(MemoryOfPrograms, OfAConnectionGoesBackWhenItIsIdle) {
  const std::uint64_t before = there();
  for (int i = 0; i < 3; ++i) {
    stream(3'000'000);
    EXPECT_GE(there(), before + ring_bytes) << i;
    EXPECT_TRUE(give_back()) << "it was not idle until now";
    EXPECT_GE(there(), before + ring_bytes) << i;
    EXPECT_TRUE(give_back());
    world.run(100 * millisecond_ns);
    reader.area->take_in();
    EXPECT_LE(there(), before + (64 << 10)) << i;
    EXPECT_FALSE(give_back());
  }
  stream(10);
  EXPECT_FALSE(give_back()) << "so little is not worth it";
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(world.ends[0].ended.empty());
}

class MemoryOfALink : public MemoryOfPrograms {
 protected:
  MemoryOfALink() : MemoryOfPrograms(wire::tcp_link_pins) {}
};

// The card writes to the pages that it has registered: new pages would hold other bytes.
TEST_F(MemoryOfALink, StaysWhereItHasThePages) {
  const std::uint64_t before = there();
  stream(3'000'000);
  for (int i = 0; i < 4; ++i) {
    static_cast<void>(give_back());
    world.run(100 * millisecond_ns);
    reader.area->take_in();
  }
  EXPECT_GE(there(), before + ring_bytes);
  stream(100'000);
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(world.ends[0].ended.empty());
}

TEST_F(MemoryOfPrograms, OfAConnectionThatIsOverGoesBack) {
  const std::uint64_t before = there();
  stream(3'000'000);
  reader.area->close(near);
  EXPECT_TRUE(give_back()) << "its peer has not closed";
  EXPECT_GE(there(), before + ring_bytes);
  writer.area->close(far);
  world.run(second_ns);
  reader.area->take_in();
  EXPECT_FALSE(give_back());
  EXPECT_LE(there(), before + (64 << 10));
}

TEST_F(MemoryOfPrograms, OfSentBytesGoesBackTenSecondsLater) {
  const auto there_of_writer = [&] {
    std::vector<unsigned char> pages((writer.memory.size() + page_bytes - 1) / page_bytes);
    OFP_ASSERT(mincore(writer.memory.data(), writer.memory.size(), pages.data()) == 0);
    return static_cast<std::uint64_t>(std::ranges::count_if(pages, [](unsigned char page) { return page & 1; })) *
           page_bytes;
  };
  const std::uint64_t before = there_of_writer();
  stream(100'000);
  const auto rest = [&](int seconds) {
    bool more = true;
    for (int i = 0; i < seconds; ++i) {
      world.run(second_ns);
      writer.area->take_in();
      more = writer.area->give_back(world.now);
    }
    return more;
  };
  EXPECT_TRUE(rest(8));
  EXPECT_GE(there_of_writer(), before + 65'536);
  EXPECT_FALSE(rest(4));
  EXPECT_LE(there_of_writer(), before + (8 << 10));
  EXPECT_FALSE(writer.area->has_memory());
  stream(100'000);
  EXPECT_TRUE(writer.area->has_memory());
  EXPECT_EQ(wrong, 0u);
}

// Segments that arrive while pages are returned are lost and retransmitted; data that arrived before, out of order,
// keeps its pages.
TEST_F(MemoryOfPrograms, GoesBackWhileThePeerSends) {
  std::mt19937_64 random(7);
  Impairments bad;
  bad.loss = bad.reorder = 0.2;
  world.ends[1].port->set(bad, {});
  const auto more = [&] {
    std::vector<std::byte> out(1 + random() % 30'000);
    for (std::size_t k = 0; k < out.size(); ++k) out[k] = stream_byte(1, sent + k);
    if (const auto taken = writer.area->send(far, out)) sent += *taken;
  };
  const auto wait = [&] { world.run(static_cast<TimeNs>(random() % 400) * microsecond_ns); };
  for (int i = 0; i < 100; ++i) {
    stream(200'000);
    static_cast<void>(give_back());
    world.run(second_ns);
    if (i % 2 == 0) more();
    wait();
    static_cast<void>(reader.area->give_back(world.now));
    if (i % 2 == 1) more();
    wait();
    if (i % 3 == 0) reader.area->take_in();
    stream(sent - read + 1);
    ASSERT_EQ(wrong, 0u) << i;
  }
  EXPECT_TRUE(world.ends[0].ended.empty());
}

// Peers' data lies where programs say, but the agent allocates the pages.
TEST_F(Programs, OfOneUserTakeNoMoreMemoryForWhatArrivesThanItMay) {
  TcpServiceLimits limits;
  limits.receive_bytes_of_user_max = 1 << 20;
  limits.receive_bytes_max = 3 << 19;
  TestPrograms small(TestNetworkOptions{}, limits);
  const SocketOptions options{64, 65'536, 256 << 10};
  TestProgram &one = small.add(0, options), &two = small.add(0, options),
              &others = small.add(0, options, {1001, false}), &peer = small.add(1, {64, 65'536, 65'536});
  static_cast<void>(peer.area->listen(port, 16));
  small.run(second_ns);
  const auto connect = [&](TestProgram& program, bool ends) {
    const auto flow = program.area->connect(TestPrograms::endpoint(1, port)).value();
    small.run(second_ns);
    const auto look = program.area->look(flow);
    if (ends) program.area->abort(flow);
    small.run(second_ns);
    program.area->take_in();  // frees handles for reuse
    return look->connected ? TcpError::none : look->error;
  };
  for (int i = 0; i < 8; ++i) EXPECT_EQ(connect(one, true), TcpError::none) << i;  // the same ring again
  EXPECT_LE(small.ends[0].service.programs()[0].receive_bytes, 320u << 10);
  std::size_t had = 0;
  for (int i = 0; i < 6; ++i) had += connect(i % 2 == 0 ? one : two, false) == TcpError::none;
  EXPECT_EQ(had, 4u);
  EXPECT_EQ(connect(two, false), TcpError::no_room);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(connect(others, false), TcpError::none);
  EXPECT_EQ(connect(others, false), TcpError::no_room);  // the limit of all users
  // A peer's connection waits, as for an accept slot.
  static_cast<void>(two.area->listen(port, 2));
  small.run(second_ns);
  const auto waits = peer.area->connect(TestPrograms::endpoint(0, port)).value();
  small.run(second_ns);
  EXPECT_EQ(small.ends[0].service.programs()[1].accept_slots, 2u);
  small.ends[0].service.close(one.number, small.now);
  static_cast<void>(peer.area->send(waits, text("so that its segment comes again")));
  EXPECT_TRUE(
      small.run_until([&] { return small.ends[0].service.programs().front().accept_slots == 2 && two.area->take_in(); },
                      60 * second_ns));
}

// Peers that do not read what a closed connection sent keep three quarters of the server's handles, and no more.
TEST_F(Programs, KeepAQuarterOfTheirHandlesWhateverPeersOfClosedConnectionsDo) {
  TestPrograms small(TestNetworkOptions{});
  TestProgram &program = small.add(0, {16, 4096, 1024}), &peer = small.add(1, {64, 1024, 1024});
  static_cast<void>(peer.area->listen(port, 64));
  small.run(second_ns);
  const std::string more(4096, 'x');  // more than the peer's ring holds
  for (int i = 0; i < 40; ++i) {
    const auto flow = program.area->connect(TestPrograms::endpoint(1, port));
    ASSERT_TRUE(flow) << i << ": " << flow.error().message;
    ASSERT_TRUE(small.run_until([&] { return program.area->look(*flow)->connected; }, 10 * second_ns)) << i;
    ASSERT_TRUE(program.area->send(*flow, text(more)));
    program.area->close(*flow);
    small.run(100 * millisecond_ns);
    program.area->take_in();
  }
  EXPECT_EQ(small.ends[0].service.programs()[0].flows, 12u);
}

TEST_F(Programs, HaveQuotas) {
  TcpServiceLimits limits{2, 64, 16 << 20};
  TestPrograms small(TestNetworkOptions{}, limits);
  TestProgram too_many_flows({65, 1024, 1024}), too_much({64, 256 << 10, 256 << 10}), unmapped({64, 1024, 1024}),
      shorter({64, 1024, 1024});
  const auto code = [&](TestProgram& program) { return small.open(program, 0).error().code; };
  EXPECT_EQ(code(too_many_flows), Error::too_large);
  EXPECT_EQ(code(too_much), Error::too_large);
  unmapped.mapped = false;
  EXPECT_EQ(code(unmapped), Error::unsupported);
  shorter.layout.bytes += 4096;
  EXPECT_EQ(code(shorter), Error::invalid);
  shorter.layout.bytes -= 4096;
  shorter.layout.command_slots = 1000;
  EXPECT_EQ(code(shorter), Error::invalid);
  static_cast<void>(small.add(0, {64, 1024, 1024}));
  static_cast<void>(small.add(0, {64, 1024, 1024}));
  TestProgram third({64, 1024, 1024});
  EXPECT_EQ(code(third), Error::too_large);
  EXPECT_EQ(small.ends[0].service.counters().programs_refused, 6u);
  EXPECT_EQ(small.ends[0].service.programs().size(), 2u);
}

}  // namespace
}  // namespace offpath::tcp
