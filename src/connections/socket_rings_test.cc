// A flow's rings that larger ones replace, at the program's end: the agent's part is a script.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "connections/socket_area.h"
#include "testing/sockets/area_script.h"

namespace offpath::channel {
namespace {

using wire::TcpCommand;
using wire::TcpCommandKind;
using wire::TcpEvent;
namespace event = wire::tcp_event;
namespace tcp_ring = wire::tcp_ring;
constexpr std::uint32_t first_bytes = 16 << 10, next_bytes = 64 << 10;

std::byte byte_at(std::uint64_t position) { return static_cast<std::byte>(position * 7 + (position >> 8)); }

class Rings : public testing::Test {
 protected:
  Rings() {
    told.what = event::connected;
    told.handle = flow = area.connect({wire::ipv4(1), 2}).value();
    tell();
  }
  ~Rings() override { munmap(memory.data(), memory.size()); }

  void tell(std::uint32_t rings = 0) {
    told.rings = rings;
    script.tell(told);
    script.commands();
    script.take_commands();
    told.what = 0;
    told.rings = 0;
    area.take_in();
  }
  // The command for another ring that the program has given since the last look.
  std::optional<TcpCommand> asked() {
    for (const TcpCommand& each : script.commands())
      if (each.kind == TcpCommandKind::replace) return each;
    return std::nullopt;
  }
  TcpCommand advise(Way way) {
    tell(tcp_ring::of(way, tcp_ring::advised));
    return asked().value();
  }
  std::size_t send(std::size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = byte_at(sent + i);
    const auto taken = area.send(flow, bytes);
    if (taken) sent += *taken;
    return taken ? *taken : 0;
  }
  // Compares the bytes that the agent finds in a ring.
  void expect_sent(std::uint64_t at, std::uint32_t size, std::uint64_t from, std::uint64_t to) {
    std::size_t wrong = 0;
    for (std::uint64_t i = from; i < to; ++i) wrong += memory[at + i % size] != byte_at(i);
    EXPECT_EQ(wrong, 0u);
  }
  void arrive(std::uint64_t at, std::uint32_t size, std::uint64_t to) {
    for (; told.received < to; ++told.received) memory[at + told.received % size] = byte_at(told.received);
  }
  std::size_t receive(std::size_t count) {
    std::vector<std::byte> bytes(count);
    const auto taken = area.receive(flow, bytes);
    if (!taken) return 0;
    for (std::size_t i = 0; i < *taken; ++i) EXPECT_EQ(bytes[i], byte_at(read + i)) << read + i;
    read += *taken;
    return *taken;
  }
  // A process that takes in what was told, and dies at its first command. True: it got so far.
  bool dies_before_it_posts() {
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would end it in another way
      const std::uint64_t begin = align_up(wire::TcpAreaLayout::commands, page_bytes);
      mprotect(memory.data() + begin, layout.events() - begin, PROT_READ);
      area.take_in();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status);
  }

  static constexpr SocketOptions options{
      .flows = 4, .send_bytes = first_bytes, .receive_bytes = first_bytes, .pool_bytes = 8 * RingPool::word_bytes};
  wire::TcpAreaLayout layout = SocketArea::layout_of(options);
  MutableBytes memory{static_cast<std::byte*>(mmap(nullptr, layout.bytes, PROT_READ | PROT_WRITE,
                                                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
                      layout.bytes};
  SocketArea area{memory, options, [](std::uint32_t) {}};
  AreaScript script{memory, layout};
  TcpEvent told{};
  SocketArea::Handle flow = 0;
  std::uint64_t sent = 0, read = 0;
};

TEST_F(Rings, WhatIsSentAfterTheAnswerLiesInTheLargerRing) {
  EXPECT_EQ(send(10'000), 10'000u);
  told.acknowledged = 4'000;
  const TcpCommand command = advise(Way::out);
  EXPECT_EQ(command.position, 10'000u);
  EXPECT_EQ(command.receive_bytes, next_bytes);
  EXPECT_EQ(send(1), 0u) << "which ring it goes into is not known";
  EXPECT_FALSE(area.look(flow)->writable);
  tell(tcp_ring::of(Way::out, tcp_ring::taken));
  EXPECT_TRUE(area.look(flow)->writable);
  EXPECT_EQ(send(100'000), next_bytes - 6'000u);
  expect_sent(command.receive_at, next_bytes, 10'000, sent);
  // The next ring comes once nothing is left in the first one.
  tell(tcp_ring::of(Way::out, tcp_ring::advised));
  EXPECT_FALSE(asked());
  told.acknowledged = 10'000;
  tell();
  EXPECT_EQ(advise(Way::out).receive_bytes, 4 * next_bytes);
}

TEST_F(Rings, AfterARefusalTheRingGoesOn) {
  EXPECT_EQ(send(10'000), 10'000u);
  const std::uint64_t at = advise(Way::out).receive_at;
  tell(tcp_ring::of(Way::out, tcp_ring::refused));
  EXPECT_EQ(send(10'000), first_bytes - 10'000u);
  told.acknowledged = sent;
  EXPECT_EQ(advise(Way::out).receive_at, at) << "the memory was not given back";
}

TEST_F(Rings, ReadsGoOverFromOneRingToTheNext) {
  const TcpCommand command = advise(Way::in);
  EXPECT_EQ(command.position, first_bytes);
  const std::uint64_t before = [&] {
    // The first ring's place is known from the command that connected, which the script has skipped.
    return command.receive_at - options.flows * 2 * first_bytes + 2 * first_bytes * flow + first_bytes;
  }();
  arrive(before, first_bytes, first_bytes);
  told.what = event::received;
  tell(tcp_ring::of(Way::in, tcp_ring::taken));
  EXPECT_EQ(receive(10'000), 10'000u);
  arrive(command.receive_at, next_bytes, first_bytes + 20'000);
  told.what = event::received;
  tell();
  EXPECT_EQ(receive(20'000), 20'000u);
  EXPECT_EQ(receive(20'000), first_bytes + 20'000 - 30'000u);
  const auto commands = script.commands();
  const auto allows = std::ranges::find(commands, TcpCommandKind::allow, &TcpCommand::kind);
  ASSERT_NE(allows, commands.end()) << "the agent has to hear that the first ring was read";
  EXPECT_GE(allows->position, first_bytes + next_bytes);
}

TEST_F(Rings, OfAClosedConnectionServeTheNextOne) {
  for (int i = 0; i < 200; ++i) {
    for (const Way way : {Way::out, Way::in}) {
      const TcpCommand command = advise(way);
      tell(tcp_ring::of(way, i % 3 == 0 ? tcp_ring::refused : tcp_ring::taken));
      EXPECT_EQ(command.receive_bytes, next_bytes);
    }
    area.abort(flow);
    told.what = event::gone;
    tell();
    told = {};
    told.what = event::connected;
    told.handle = flow = area.connect({wire::ipv4(1), 2}).value();
    tell();
    EXPECT_EQ(area.look(flow)->send_ring, first_bytes);
  }
}

// With 32 MiB for all of them, of which each gets at most a sixteenth of what is left.
TEST_F(Rings, LeaveOthersMostOfTheMemory) {
  for (const std::uint32_t bytes : {next_bytes, 4 * next_bytes, 16 * next_bytes}) {
    EXPECT_EQ(advise(Way::out).receive_bytes, bytes);
    tell(tcp_ring::of(Way::out, tcp_ring::taken));
  }
  tell(tcp_ring::of(Way::out, tcp_ring::advised));
  EXPECT_FALSE(asked());
  EXPECT_EQ(send(100), 100u);
  EXPECT_EQ(advise(Way::in).receive_bytes, next_bytes);
}

// The command finds no room, and meanwhile the ring that was asked for before has come and has been filled.
TEST_F(Rings, AreNotAskedForOnAnAdviceBeforeTheAnswer) {
  EXPECT_EQ(advise(Way::in).receive_bytes, next_bytes);
  while (send(1) == 1) {
  }
  for (const std::uint32_t bit : {tcp_ring::advised, tcp_ring::taken, tcp_ring::returned}) {
    told.rings = tcp_ring::of(Way::in, bit);
    script.tell(told);
    area.take_in();
  }
  told.rings = 0;
  EXPECT_FALSE(asked());
  script.take_commands();
  area.take_in();
  EXPECT_FALSE(asked());
  script.take_commands();
  EXPECT_EQ(advise(Way::in).receive_bytes, 4 * next_bytes);
}

// It dies after it has taken memory, and before the command that names it is posted.
TEST_F(Rings, AreAskedForAnewWhenAProcessDiesWhileItAsks) {
  const TcpCommand first = advise(Way::out);
  tell(tcp_ring::of(Way::out, tcp_ring::taken));
  const TcpCommand in = advise(Way::in);
  told.rings = tcp_ring::of(Way::out, tcp_ring::advised);
  script.tell(told);
  told.rings = 0;
  ASSERT_TRUE(dies_before_it_posts());
  area.take_in();
  const auto again = asked();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->receive_bytes, 4 * next_bytes);
  EXPECT_EQ(again->receive_at, first.receive_at + 4 * next_bytes) << "the memory that the child took is lost";
  tell(tcp_ring::of(Way::out, tcp_ring::taken) | tcp_ring::of(Way::in, tcp_ring::taken));
  EXPECT_EQ(area.look(flow)->send_ring, 4 * next_bytes);
  EXPECT_EQ(area.look(flow)->receive_ring, next_bytes);
  EXPECT_EQ(in.receive_at, first.receive_at + next_bytes);
}

class IdleRings : public Rings {
 protected:
  IdleRings() {
    for (const Way way : {Way::out, Way::in}) {
      larger[static_cast<std::size_t>(way)] = advise(way);
      tell(tcp_ring::of(way, tcp_ring::taken));
    }
    send(100);
    told.acknowledged = sent;
    tell(tcp_ring::of(Way::in, tcp_ring::returned));
    script.commands();
    script.take_commands();
  }
  // The commands that it has given by then.
  std::vector<TcpCommand> rest(TimeNs duration) {
    for (const TimeNs end = now + duration; now < end; now += second_ns) static_cast<void>(area.give_back(now));
    return script.commands();
  }
  static bool has(const std::vector<TcpCommand>& commands, TcpCommandKind kind) {
    return std::ranges::find(commands, kind, &TcpCommand::kind) != commands.end();
  }
  void tell_shut(std::uint32_t outcome) {
    told.shut = outcome;
    told.what = event::received;
    script.tell(told);
    told.shut = 0;
    told.what = 0;
    area.take_in();
  }

  TimeNs now = 100 * second_ns;
  std::array<TcpCommand, 2> larger{};
};

TEST_F(IdleRings, AreReplacedByFirstOnes) {
  EXPECT_EQ(rest(10 * second_ns).size(), 0u);
  const auto commands = rest(2 * second_ns);
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_EQ(commands[0].kind, TcpCommandKind::replace);
  EXPECT_EQ(commands[0].position, sent);
  EXPECT_EQ(commands[0].receive_bytes, first_bytes);
  EXPECT_EQ(commands[1].kind, TcpCommandKind::shut);
  EXPECT_EQ(send(1), 0u) << "which ring it goes into is not known";
  tell_shut(wire::tcp_shut::done);
  const auto in = asked();
  ASSERT_TRUE(in);
  EXPECT_EQ(in->flags, static_cast<std::uint16_t>(Way::in));
  EXPECT_EQ(in->position, read);
  EXPECT_EQ(in->receive_at, commands[0].receive_at + first_bytes);
  EXPECT_TRUE(area.is_giving_back());
  constexpr std::uint32_t done = tcp_ring::taken | tcp_ring::returned;
  told.rings = tcp_ring::of(Way::out, done) | tcp_ring::of(Way::in, done);
  script.tell(told);
  told.rings = 0;
  area.take_in();
  const auto after = script.commands();
  ASSERT_EQ(after.size(), 1u);
  EXPECT_EQ(after[0].kind, TcpCommandKind::allow);
  EXPECT_EQ(after[0].position, read + first_bytes);
  EXPECT_FALSE(area.is_giving_back());
  EXPECT_EQ(area.look(flow)->send_ring, first_bytes);
  EXPECT_EQ(area.look(flow)->receive_ring, first_bytes);
  EXPECT_EQ(send(1000), 1000u);
  expect_sent(commands[0].receive_at, first_bytes, sent - 1000, sent);
  arrive(in->receive_at, first_bytes, read + 5000);
  told.what = event::received;
  tell();
  EXPECT_EQ(receive(5000), 5000u);
  // All the memory is there again.
  EXPECT_EQ(advise(Way::out).receive_at, larger[0].receive_at);
  EXPECT_EQ(advise(Way::in).receive_at, larger[1].receive_at);
}

// The first ring was replaced, and then by a third one, but no bytes have come that go into that.
TEST_F(IdleRings, AreLeftBeforeTheirBytesHaveCome) {
  const TcpCommand third = advise(Way::in);
  tell(tcp_ring::of(Way::in, tcp_ring::taken));
  EXPECT_EQ(area.look(flow)->receive_ring, 4 * next_bytes);
  EXPECT_TRUE(has(rest(12 * second_ns), TcpCommandKind::shut));
  tell_shut(wire::tcp_shut::done);
  auto in = asked();
  ASSERT_TRUE(in);
  EXPECT_EQ(in->receive_bytes, first_bytes);
  EXPECT_EQ(in->position, read);
  told.rings = tcp_ring::of(Way::in, tcp_ring::refused);
  script.tell(told);
  area.take_in();
  EXPECT_EQ(area.look(flow)->receive_ring, 4 * next_bytes);
  arrive(larger[1].receive_at, next_bytes, 5000);
  told.what = event::received;
  told.rings = 0;
  tell();
  EXPECT_EQ(receive(5000), 5000u) << "they are in the ring before";

  EXPECT_TRUE(has(rest(13 * second_ns), TcpCommandKind::shut));
  tell_shut(wire::tcp_shut::done);
  in = asked();
  ASSERT_TRUE(in);
  EXPECT_EQ(in->position, 5000u);
  constexpr std::uint32_t done = tcp_ring::taken | tcp_ring::returned;
  tell(tcp_ring::of(Way::out, done) | tcp_ring::of(Way::in, done));
  arrive(in->receive_at, first_bytes, 15'000);
  told.what = event::received;
  tell();
  EXPECT_EQ(receive(10'000), 10'000u);
  // All the memory is there again.
  EXPECT_EQ(advise(Way::out).receive_at, larger[0].receive_at);
  EXPECT_EQ(advise(Way::in).receive_at, larger[1].receive_at);
  tell(tcp_ring::of(Way::in, tcp_ring::taken));
  told.received = read;
  tell(tcp_ring::of(Way::in, tcp_ring::returned));
  EXPECT_EQ(advise(Way::in).receive_at, third.receive_at);
}

TEST_F(IdleRings, StayWhereBytesMove) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(has(rest(8 * second_ns), TcpCommandKind::replace));
    EXPECT_EQ(send(1), 1u);
    told.acknowledged = sent;
    tell();
  }
}

TEST_F(IdleRings, StayIfTheAgentRefuses) {
  EXPECT_TRUE(has(rest(12 * second_ns), TcpCommandKind::shut));
  tell_shut(wire::tcp_shut::refused);
  auto commands = script.commands();
  ASSERT_TRUE(has(commands, TcpCommandKind::allow)) << "the window stays shut";
  EXPECT_EQ(commands.back().position, read + next_bytes);
  tell(tcp_ring::of(Way::out, tcp_ring::refused));
  EXPECT_EQ(send(1), 1u);
  told.acknowledged = sent;
  tell();
  EXPECT_EQ(area.look(flow)->send_ring, next_bytes);

  EXPECT_TRUE(has(rest(13 * second_ns), TcpCommandKind::shut));
  tell_shut(wire::tcp_shut::done);
  ASSERT_TRUE(asked());
  told.rings = tcp_ring::of(Way::in, tcp_ring::refused);
  script.tell(told);
  told.rings = 0;
  area.take_in();
  commands = script.commands();
  ASSERT_TRUE(has(commands, TcpCommandKind::allow)) << "the window stays shut";
  EXPECT_EQ(commands.back().position, read + next_bytes);
  EXPECT_EQ(area.look(flow)->receive_ring, next_bytes);
}

TEST_F(IdleRings, OfAConnectionThatEndsMeanwhileServeTheNextOne) {
  EXPECT_TRUE(has(rest(12 * second_ns), TcpCommandKind::shut));
  tell_shut(wire::tcp_shut::done);
  ASSERT_TRUE(asked());
  area.abort(flow);
  told.what = event::gone;
  tell();
  EXPECT_FALSE(area.is_giving_back());
  told = {};
  told.what = event::connected;
  told.handle = flow = area.connect({wire::ipv4(1), 2}).value();
  tell();
  EXPECT_EQ(area.look(flow)->send_ring, first_bytes);
  EXPECT_EQ(advise(Way::out).receive_at, larger[0].receive_at);
}

// It dies when it has noted that it asks for the first ring, and before the command is posted.
TEST_F(IdleRings, AreAskedForAnewWhenAProcessDiesWhileItAsks) {
  EXPECT_TRUE(has(rest(12 * second_ns), TcpCommandKind::shut));
  told.shut = wire::tcp_shut::done;
  told.what = event::received;
  script.tell(told);
  told.shut = 0;
  told.what = 0;
  ASSERT_TRUE(dies_before_it_posts());
  area.take_in();
  const auto again = asked();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->receive_bytes, first_bytes);
  constexpr std::uint32_t done = tcp_ring::taken | tcp_ring::returned;
  tell(tcp_ring::of(Way::out, done) | tcp_ring::of(Way::in, done));
  EXPECT_EQ(area.look(flow)->receive_ring, first_bytes);
  EXPECT_FALSE(area.is_giving_back());
}

// The window of a ring that only one direction has is to be shut, and the command is not posted.
TEST_F(Rings, ShutTheirWindowAnewWhenAProcessDiesBefore) {
  static_cast<void>(advise(Way::in));
  tell(tcp_ring::of(Way::in, tcp_ring::taken));
  tell(tcp_ring::of(Way::in, tcp_ring::returned));
  TimeNs now = 100 * second_ns;
  for (int i = 0; i < 10; ++i, now += second_ns) static_cast<void>(area.give_back(now));
  script.commands();
  script.take_commands();
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would end it in another way
    const std::uint64_t begin = align_up(wire::TcpAreaLayout::commands, page_bytes);
    mprotect(memory.data() + begin, layout.events() - begin, PROT_READ);
    static_cast<void>(area.give_back(now));
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status)) << "it did not get so far";
  EXPECT_FALSE(area.is_giving_back());
  static_cast<void>(area.give_back(now + second_ns));
  const auto commands = script.commands();
  EXPECT_NE(std::ranges::find(commands, TcpCommandKind::shut, &TcpCommand::kind), commands.end());
}

// As after exec() with another OFFPATH_SOCKETS_RING: the area has the same length.
TEST(SocketOptions, AreThoseOfTheProcessThatMadeTheArea) {
  const SocketOptions made{.flows = 4, .send_bytes = 16 << 10, .receive_bytes = 64 << 10};
  SocketOptions other = made;
  std::swap(other.send_bytes, other.receive_bytes);
  const std::uint64_t bytes = SocketArea::layout_of(made).bytes;
  ASSERT_EQ(SocketArea::layout_of(other).bytes, bytes);
  auto* const at = static_cast<std::byte*>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  const MutableBytes memory{at, bytes};
  const SocketArea area(memory, made, [](std::uint32_t) {});
  EXPECT_TRUE(SocketArea::lies_in(memory, made));
  EXPECT_FALSE(SocketArea::lies_in(memory, other));
  munmap(at, bytes);
}

}  // namespace
}  // namespace offpath::channel
