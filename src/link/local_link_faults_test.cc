// What a host or an agent gets that dies, or does what it must not.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "link/connected_pair.h"
#include "link/emulated.h"
#include "link/sealed_memory.h"
#include "link/seeded_random.h"
#include "wire/region.h"

namespace offpath::link {
namespace {

using wire::ControlType;

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// A process that ends by the signal it gets, whatever happens to the test.
class Child {
 public:
  template <class Body>
  explicit Child(Body body) {
    pid_ = fork();
    if (pid_ != 0) return;
    body();
    for (;;) pause();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { kill_now(); }
  void kill_now() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

// Shared with children: what they want to tell.
struct Blackboard {
  std::atomic<std::uint64_t> address, grandchild, ready;
};
class SharedBlackboard {
 public:
  SharedBlackboard() : memory_(std::move(*allocate_sealed(sizeof(Blackboard)))) {}
  Blackboard* operator->() { return reinterpret_cast<Blackboard*>(memory_.data()); }

 private:
  SegmentMemory memory_;
};

TEST(HostKilled, IsNoticedThoughAGrandchildHoldsTheSocket) {
  OFP_NEEDS_KERNEL("process_vm_readv");
  TestAgent agent;
  SharedBlackboard board;
  Child host([&] {
    auto connected = connect(agent.address, {}, soon());
    std::vector<std::byte> bytes(4096, std::byte{6});
    board->address = reinterpret_cast<std::uint64_t>(bytes.data());
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      for (;;) pause();
    }
    board->grandchild = static_cast<std::uint64_t>(grandchild);
    board->ready = 1;
    for (;;) pause();
  });
  const auto arrival = agent.serve();
  ASSERT_TRUE(arrival.link);
  const TimeNs deadline = soon();
  while (board->ready == 0 && monotonic_ns() < deadline) usleep(1000);
  ASSERT_EQ(board->ready, 1u);
  ASSERT_TRUE(arrival.link->attach_range(1, 1, board->address, 4096, 0));
  std::vector<std::byte> target(4096);
  ASSERT_TRUE(read_one(*arrival.link, {1, 1, 0, target.data(), 4096}));
  EXPECT_EQ(target[4095], std::byte{6});

  host.kill_now();
  pollfd look{arrival.link->life_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&look, 1, 10'000), 1);
  const ReadPiece piece{1, 1, 0, target.data(), 4096};
  arrival.link->read(7, {&piece, 1});
  std::array<LinkEvent, 4> events;
  ASSERT_EQ(arrival.link->poll(monotonic_ns(), events), 2u);
  EXPECT_EQ(events[0].status.error().code, Error::peer_lost);
  EXPECT_EQ(events[1].kind, LinkEvent::Kind::closed);
  kill(static_cast<pid_t>(board->grandchild.load()), SIGKILL);
}

// Nobody but the socket tells here: the process lives on as another program.
TEST(HostReplaced, ByAnotherProgramIsNoticed) {
  TestAgent agent;
  Child host([&] {
    auto connected = connect(agent.address, {}, soon());
    execl("/bin/sleep", "sleep", "60", nullptr);
  });
  const auto arrival = agent.serve();
  ASSERT_TRUE(arrival.link);
  EXPECT_EQ(await_kind(*arrival.link, LinkEvent::Kind::closed).status.error().code, Error::peer_lost);
}

TEST(AgentKilled, IsNoticedThoughItsChildHoldsTheSocket) {
  TestDirectory directory;
  auto address = *Address::parse("unix:" + directory.file("agent"));
  SharedBlackboard board;
  Child agent([&] {
    TestAgent other("unix:" + address.path);
    board->ready = 1;
    auto arrival = other.serve();
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      for (;;) pause();
    }
    board->grandchild = static_cast<std::uint64_t>(grandchild);
    board->ready = 2;
    for (;;) pause();
  });
  const TimeNs deadline = soon();
  while (board->ready == 0 && monotonic_ns() < deadline) usleep(1000);
  auto host = connect(address, {}, soon());
  ASSERT_TRUE(host) << host.error().message;
  while (board->ready == 1 && monotonic_ns() < deadline) usleep(1000);
  EXPECT_TRUE((*host)->look());
  pollfd look{(*host)->event_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&look, 1, 0), 0);

  std::thread waiting([&] { (*host)->wait(soon()); });
  agent.kill_now();
  waiting.join();
  EXPECT_EQ(::poll(&look, 1, 10'000), 1);
  EXPECT_EQ((*host)->look().error().code, Error::peer_lost);
  EXPECT_EQ((*host)->take_descriptor(1, soon()).error().code, Error::peer_lost);
  (*host)->wake();
  kill(static_cast<pid_t>(board->grandchild.load()), SIGKILL);
}

TEST(AgentThatEndsAChannel, IsHeardByAHostThatOnlyWakesIt) {
  TestAgent agent;
  auto [host, arrival] = agent.meet();
  ASSERT_TRUE(host && arrival.link);
  (*host)->retire_segment(wire::channel_segment);
  EXPECT_EQ(await_kind(*arrival.link, LinkEvent::Kind::closed).status.error().code, Error::protocol);
  arrival.link->close();
  (*host)->wake();
  const Status looked = (*host)->look();
  ASSERT_FALSE(looked);
  EXPECT_EQ(looked.error().code, Error::protocol);
  EXPECT_NE(looked.error().message.find("the channel segment cannot be withdrawn"), std::string::npos) << looked.error().message;
}

TEST(AgentStopped, AnnouncingASegmentEndsAtTheDeadlineAndMayBeTriedAgain) {
  TestAgent agent;
  auto [connected, arrival] = agent.meet();
  ASSERT_TRUE(connected && arrival.link);
  HostLink& host = **connected;
  auto first = host.allocate(4096), second = host.allocate(8192);
  ASSERT_TRUE(first && second);
  const RegionId segment = wire::segment_flag | 1;
  EXPECT_EQ(host.announce_segment(segment, *first, monotonic_ns() + millisecond_ns).error().code, Error::timeout);
  std::thread going_on([&] { EXPECT_TRUE(host.announce_segment(segment, *second, soon())); });
  const TimeNs deadline = soon();
  std::array<LinkEvent, 4> events;
  while (arrival.link->mapped(segment).size() != 8192 && monotonic_ns() < deadline) arrival.link->poll(monotonic_ns(), events);
  going_on.join();
  EXPECT_EQ(arrival.link->mapped(segment).size(), 8192u);
}

// A child that knows nothing of channels, and destroys what it inherited.
TEST(ForkedChild, ThatWasNeverToldLeavesTheConnectionToItsParent) {
  TestAgent agent;
  auto [host, arrival] = agent.meet();
  ASSERT_TRUE(host && arrival.link);
  const pid_t child = fork();
  if (child == 0) {
    host->reset();
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  (*host)->wake();
  await_kind(*arrival.link, LinkEvent::Kind::woken);
  EXPECT_TRUE((*host)->look());
}

TEST(SharedMemory, CannotBeTakenBack) {
  TestAgent agent;
  auto [host, arrival] = agent.meet();
  ASSERT_TRUE(host && arrival.link);
  auto memory = (*host)->allocate(64 * 1024);
  ASSERT_TRUE(memory);
  EXPECT_EQ(ftruncate(memory->fd(), 4096), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(ftruncate(memory->fd(), 128 * 1024), -1);
  EXPECT_EQ(fcntl(memory->fd(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  // A host that unmaps it, or maps something else in its place, harms itself only.
  const MutableBytes theirs = arrival.link->mapped(wire::channel_segment);
  const MutableBytes mine = (*host)->channel_memory();
  theirs[5000] = std::byte{1};
  ASSERT_NE(mmap(mine.data(), mine.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), MAP_FAILED);
  EXPECT_EQ(mine[5000], std::byte{0});
  EXPECT_EQ(theirs[5000], std::byte{1});
}

// A host whose library was replaced: frames as the test wants them, after a proper handshake.
class RawHost : public testing::Test {
 protected:
  void open(const SegmentLimits& limits = {}) {
    agent.policy.segments = limits;
    auto memory = allocate_sealed(wire::ChannelLayout{}.total_bytes());
    ASSERT_TRUE(memory);
    auto dialled = dial(agent.address, soon());
    ASSERT_TRUE(dialled);
    socket = ControlSocket(std::move(*dialled), ControlSocket::Kind::unix_socket);
    std::vector<std::byte> payload;
    wire::encode(wire::Hello{}, payload);
    ASSERT_TRUE(socket.send(ControlType::hello, payload, memory->fd()));
    auto arrival = agent.serve();
    ASSERT_TRUE(arrival.link) << arrival.failure.message;
    there = std::move(arrival.link);
    auto welcome = await_frame(socket, soon());
    ASSERT_TRUE(welcome);
    ASSERT_EQ(welcome->type, ControlType::welcome);
  }
  void announce(wire::SegmentNotice notice, int descriptor) {
    std::vector<std::byte> payload;
    wire::encode(notice, payload);
    ASSERT_TRUE(socket.send(ControlType::segment, payload, descriptor));
  }
  // The link ends, and the host is told why.
  Failure ended() {
    const LinkEvent event = await_kind(*there, LinkEvent::Kind::closed);
    EXPECT_FALSE(event.status);
    for (;;) {
      auto frame = await_frame(socket, soon());
      if (!frame) {
        ADD_FAILURE() << "the host was not told: " << frame.error().message;
        return {Error::cancelled, ""};
      }
      if (frame->type != ControlType::refusal) continue;
      auto refusal = wire::decode_refusal(frame->payload);
      EXPECT_EQ(refusal->message, event.status.error().message);
      return {refusal->code, refusal->message};
    }
  }
  static Fd memory_with(int with, std::uint64_t length) {
    Fd memory(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(ftruncate(memory.get(), static_cast<off_t>(length)), 0);
    EXPECT_EQ(fcntl(memory.get(), F_ADD_SEALS, with), 0);
    return memory;
  }

  TestAgent agent;
  ControlSocket socket;
  std::unique_ptr<AgentLink> there;
};

TEST_F(RawHost, UnsealedSegment) {
  open();
  announce({wire::segment_flag | 1, 8192, 0, 0}, memory_with(F_SEAL_GROW, 8192).get());
  const Failure failure = ended();
  EXPECT_EQ(failure.code, Error::denied);
  EXPECT_EQ(failure.message, "segment 1: the memfd has the seals GROW, needed are SHRINK, GROW, SEAL");
}

TEST_F(RawHost, SegmentShorterThanAnnounced) {
  open();
  announce({wire::segment_flag | 1, 8192, 0, 0}, memory_with(seals, 4096).get());
  EXPECT_EQ(ended().message, "segment 1: the memfd has 4096 bytes, announced are 8192");
}

TEST_F(RawHost, SegmentAnnouncedTwice) {
  open();
  const Fd memory = memory_with(seals, 4096);
  announce({wire::segment_flag | 1, 4096, 0, 0}, memory.get());
  announce({wire::segment_flag | 1, 4096, 0, 0}, memory.get());
  EXPECT_EQ(ended().message, "segment 1: announced twice");
}

TEST_F(RawHost, SegmentsBeyondTheLimits) {
  const std::uint64_t channel = wire::ChannelLayout{}.total_bytes();
  open({.count_max = 3, .bytes_max = channel + 8192});
  announce({wire::segment_flag | 1, 4096, 0, 0}, memory_with(seals, 4096).get());
  announce({wire::segment_flag | 2, 8192, 0, 0}, memory_with(seals, 8192).get());
  EXPECT_EQ(ended().message, fmt::format("segment 2: its 8192 bytes and the {} of other segments are more than the {} allowed",
                                         channel + 4096, channel + 8192));
  open({.count_max = 3, .bytes_max = channel + 8192});
  announce({wire::segment_flag | 3, 4096, 0, 0}, memory_with(seals, 4096).get());
  EXPECT_EQ(ended().message, "segment 3: at most 3 segments are allowed");
}

TEST_F(RawHost, SegmentsThatMayNotBeWithdrawn) {
  for (const RegionId region : {wire::channel_segment, wire::segment_flag | 7, RegionId{7}}) {
    open();
    ASSERT_TRUE(socket.send(ControlType::segment_gone, std::as_bytes(std::span(&region, 1))));
    const Failure failure = ended();
    EXPECT_TRUE(failure.code == Error::protocol || failure.code == Error::unannounced) << failure.message;
  }
}

TEST_F(RawHost, FramesOutOfPlace) {
  for (const ControlType type : {ControlType::hello, ControlType::proof, ControlType::welcome, ControlType::refusal, ControlType::read,
                                 ControlType::write, ControlType::read_done, ControlType::descriptor}) {
    open();
    const Fd memory = memory_with(seals, 4096);
    ASSERT_TRUE(socket.send(type, bytes_of("12345678"), descriptors_of(type) > 0 ? memory.get() : -1));
    const Failure failure = ended();
    EXPECT_EQ(failure.code, Error::protocol);
    EXPECT_EQ(failure.message, fmt::format("{}: a frame that has no place on an open channel", control_type_name(type)));
  }
}

TEST_F(RawHost, OffersNobodyTakes) {
  open();
  const Fd memory = memory_with(seals, 4096);
  for (std::uint64_t i = 0; i < 200; ++i) ASSERT_TRUE(socket.send(ControlType::offer, std::as_bytes(std::span(&i, 1)), memory.get()));
  for (std::uint64_t i = 0; i < 200; ++i) EXPECT_EQ(await_kind(*there, LinkEvent::Kind::offered, [&] { (void)socket.flush(); }).token, i);
}

TEST_F(RawHost, GarbageEndsTheLinkOnly) {
  for (unsigned seed = 1; seed < 60; ++seed) {
    open();
    SeededRandom random(seed);
    std::vector<std::byte> bytes(8 + random.next() % 500);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random.next());
    bytes[4] = static_cast<std::byte>(random.next() % 20);  // often a type there is
    bytes[5] = bytes[6] = bytes[7] = bytes[1] = bytes[2] = bytes[3] = std::byte{};
    ASSERT_EQ(::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    socket.shut_down();
    const LinkEvent event = await_kind(*there, LinkEvent::Kind::closed);
    EXPECT_FALSE(event.status);
  }
}

}  // namespace
}  // namespace offpath::link
