// A host or agent that dies, or breaks the protocol, and the other end's view.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "link/local/sealed_memory.h"
#include "testing/link/connected_pair.h"
#include "testing/link/emulated.h"
#include "testing/link/seeded_random.h"
#include "wire/region.h"

namespace offpath::link {
namespace {

using wire::ControlType;

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// A process that is killed at the end, even if the test fails.
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

// Results of children, in shared memory.
struct Blackboard {
  std::atomic<std::uint64_t> address, grandchild, ready, delay_us;
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
  EXPECT_EQ(::poll(&look, 1, patience_ms()), 1);
  const ReadPiece piece{1, 1, 0, target.data(), 4096};
  arrival.link->read(7, {&piece, 1});
  std::array<LinkEvent, 4> events;
  ASSERT_EQ(arrival.link->poll(monotonic_ns(), events), 2u);
  EXPECT_EQ(events[0].status.error().code, Error::peer_lost);
  EXPECT_EQ(events[1].kind, LinkEvent::Kind::closed);
  kill(static_cast<pid_t>(board->grandchild.load()), SIGKILL);
}

// Only the socket reveals it: the process lives on as another program.
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

// A program that executes another one while a companion keeps the connection and the channel's memory. The pid stays
// the same, no descriptor ends, and the agent may read all processes; but the other program's memory does not belong to
// the connection.
class HostReplacedWithCompanion : public testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  static constexpr uid_t plain_user = 64'002;
  static constexpr char own_byte = 'o';

  [[nodiscard]] static bool gains_rights() { return std::get<0>(GetParam()); }   // the program is root's, setuid
  [[nodiscard]] static bool shares_memory() { return std::get<1>(GetParam()); }  // the companion shares it with the old
                                                                                 // program
  void SetUp() override {
    OFP_NEEDS_KERNEL("process_vm_readv");
    if (gains_rights() && geteuid() != 0) GTEST_SKIP() << "only root can make a program that others execute as root";
    FILE* asked = popen(SECRET_KEEPER, "r");
    ASSERT_NE(asked, nullptr);
    ASSERT_EQ(std::fscanf(asked, "%p %zu %p %zu", &secret, &length, &other, &other_length), 4);
    pclose(asked);
    std::filesystem::copy_file(SECRET_KEEPER, keeper);
    ASSERT_EQ(chmod(keeper.c_str(), gains_rights() ? 04755 : 0755), 0);
    ASSERT_EQ(chmod(directory.path().c_str(), 0755), 0);
    if (gains_rights()) agent.policy.uids = {plain_user};
  }

  static int companion(void* board) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (*static_cast<SharedBlackboard*>(board))->ready = 1;
    for (;;) pause();
  }
  // Connects with the channel's memory at an address where the keeper has other memory, so that a read there succeeds
  // in both.
  void connect_there() {
    const std::uint64_t bytes = wire::ChannelLayout{}.total_bytes();
    OFP_ASSERT(bytes <= other_length);
    const auto memory = allocate_sealed(bytes);
    OFP_ASSERT(memory &&
               mmap(other, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, memory->fd(), 0) == other);
    static ControlSocket socket(*dial(agent.address, soon()), ControlSocket::Kind::unix_socket);
    wire::Hello hello;
    hello.channel_address = reinterpret_cast<std::uint64_t>(other);
    std::vector<std::byte> payload;
    wire::encode(hello, payload);
    OFP_ASSERT(socket.send(ControlType::hello, payload, memory->fd()));
    const auto welcome = await_frame(socket, soon());
    OFP_ASSERT(welcome && welcome->type == ControlType::welcome);
  }
  // The program: connects, starts its companion, and executes the keeper the board's delay after the signal.
  void run(SharedBlackboard& board, int told, bool there = false) {
    if (gains_rights()) {
      OFP_ASSERT(setresgid(plain_user, plain_user, plain_user) == 0 &&
                 setresuid(plain_user, plain_user, plain_user) == 0);
      prctl(PR_SET_DUMPABLE, 1);
    }
    void* mapped =
        mmap(secret, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    OFP_ASSERT(mapped == secret);
    std::memset(mapped, own_byte, length);
    Result<std::unique_ptr<HostLink>> connected;
    if (there)
      connect_there();
    else
      OFP_ASSERT(connected = connect(agent.address, {}, soon()));
    alignas(16) static std::array<char, 65536> stack;
    const pid_t started =
        shares_memory() ? clone(companion, stack.data() + stack.size(), CLONE_VM | SIGCHLD, &board) : fork();
    if (started == 0) companion(&board);
    OFP_ASSERT(started > 0);
    while (board->ready != 2) usleep(50);
    usleep(static_cast<useconds_t>(board->delay_us));
    execl(keeper.c_str(), "keeper", std::to_string(told).c_str(), nullptr);
  }

  TestDirectory directory;
  const std::string keeper = directory.file("keeper");
  TestAgent agent{"unix:" + directory.file("agent")};
  void *secret = nullptr, *other = nullptr;
  std::size_t length = 0, other_length = 0;
};

TEST_P(HostReplacedWithCompanion, IsNeverReadAndEndsTheLink) {
  SeededRandom random(7);
  std::vector<char> target(length);
  unsigned all_good = 0;
  for (unsigned round = 0; round < 40; ++round) {
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const Fd hears(told[0]), tells(told[1]);
    SharedBlackboard board;
    Child host([&] { run(board, told[1]); });
    const auto arrival = agent.serve();
    ASSERT_TRUE(arrival.link) << arrival.failure.message;
    ASSERT_FALSE(arrival.link->traits().staged) << arrival.link->traits().reason;
    ASSERT_TRUE(arrival.link->attach_range(1, 1, reinterpret_cast<std::uint64_t>(secret), length, 0));
    std::vector<ReadPiece> pieces;  // last page first, so that each is a separate vector
    for (std::size_t at = length; at > 0; at -= 4096)
      pieces.push_back({1, 1, at - 4096, reinterpret_cast<std::byte*>(target.data() + at - 4096), 4096});
    const TimeNs deadline = soon();
    while (board->ready == 0 && monotonic_ns() < deadline) usleep(100);
    // The program is executed somewhere in the time of two reads, which a sanitizer makes many times longer.
    ASSERT_TRUE(read_one(*arrival.link, pieces.front()));  // the first one starts the user's thread
    const TimeNs asked = monotonic_ns();
    arrival.link->read(1, pieces);
    ASSERT_TRUE(await_kind(*arrival.link, LinkEvent::Kind::read_done).status);
    board->delay_us = random.next() % (2 * static_cast<std::uint64_t>(monotonic_ns() - asked) / microsecond_ns + 1);
    board->ready = 2;
    unsigned good = 0;
    for (bool ended = false, outstanding = false; !ended;) {
      ASSERT_LT(monotonic_ns(), deadline) << "the link lives on without the program";
      if (!std::exchange(outstanding, true)) {
        std::memset(target.data(), 0, length);  // a loop would take longer than the program waits
        arrival.link->read(1, pieces);
      }
      std::array<LinkEvent, 4> events;
      const std::size_t count = arrival.link->poll(monotonic_ns(), events);
      if (count == 0) continue;  // the user's thread reads it
      outstanding = false;
      for (const LinkEvent& event : std::span(events).first(count)) {
        ended = ended || event.kind == LinkEvent::Kind::closed;
        if (event.status) {
          ++good;
          ASSERT_TRUE(std::ranges::all_of(target, [](char byte) { return byte == own_byte; }))
              << "round " << round << ", read " << good << ": bytes of the program that was executed";
        } else {  // not a message about mapped and unmapped memory
          ASSERT_EQ(event.status.error().code, Error::peer_lost) << event.status.error().message;
        }
      }
      ASSERT_EQ(std::ranges::count(target, 's'), 0) << "round " << round << ": they were read, and only not told";
    }
    unsigned user = ~0u;
    ASSERT_EQ(::read(hears.get(), &user, sizeof user), static_cast<ssize_t>(sizeof user));
    ASSERT_EQ(user, geteuid());
    all_good += good;
  }
  EXPECT_GT(all_good, 0u) << "no read ever came before the program was executed";
}

// The other program has memory where the channel was, so the call succeeds and reads the secret: only the comparison of
// the witness detects it. Readers who have the target mapped never see the secret, not even for a moment.
TEST_P(HostReplacedWithCompanion, IsToldByTheWitnessThoughItsMemoryCanBeRead) {
  for (const bool unshared : {false, true}) {
    const auto target = allocate_sealed(length);
    ASSERT_TRUE(target);
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const Fd hears(told[0]), tells(told[1]);
    SharedBlackboard board;
    Child host([&] { run(board, told[1], true); });
    const auto arrival = agent.serve();
    ASSERT_TRUE(arrival.link) << arrival.failure.message;
    ASSERT_FALSE(arrival.link->traits().staged) << arrival.link->traits().reason;
    ASSERT_TRUE(arrival.link->attach_range(1, 1, reinterpret_cast<std::uint64_t>(secret), length, 0));
    const ReadPiece whole{1, 1, 0, target->data(), length, unshared};
    ASSERT_TRUE(read_one(*arrival.link, whole));
    const auto count_of = [&](char byte) { return std::ranges::count(target->bytes(), static_cast<std::byte>(byte)); };
    ASSERT_EQ(count_of(own_byte), static_cast<std::ptrdiff_t>(length));

    for (const TimeNs deadline = soon(); board->ready == 0 && monotonic_ns() < deadline;) usleep(100);
    board->ready = 2;
    unsigned user = ~0u;
    ASSERT_EQ(::read(hears.get(), &user, sizeof user), static_cast<ssize_t>(sizeof user));  // its secret is in place
    ASSERT_EQ(user, geteuid());
    const void* mapped = mmap(nullptr, length, PROT_READ, MAP_SHARED, target->fd(), 0);
    ASSERT_NE(mapped, MAP_FAILED);
    std::atomic<bool> looks = false, ends = false, shown = false;
    std::thread reader([&] {
      const auto* const page = static_cast<const volatile char*>(mapped);
      for (; !ends; looks = true)
        for (std::size_t at = 0; at < length; at += 512) shown = shown || page[at] == 's';
    });
    while (!looks) usleep(10);
    const Status read = read_one(*arrival.link, whole);
    ends = true;
    reader.join();
    munmap(const_cast<void*>(mapped), length);
    ASSERT_FALSE(read) << "bytes of the program that was executed";
    EXPECT_EQ(read.error().code, Error::peer_lost) << read.error().message;
    EXPECT_EQ(count_of('s'), 0);
    if (unshared) continue;
    EXPECT_FALSE(shown) << "a reader saw the secret before it was wiped";
    EXPECT_EQ(count_of(own_byte), static_cast<std::ptrdiff_t>(length)) << "something was written to the target";
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, HostReplacedWithCompanion, testing::Combine(testing::Bool(), testing::Bool()),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param) ? "Setuid" : "Plain") +
                                  (std::get<1>(each.param) ? "SharedMemory" : "Fork");
                         });

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
  EXPECT_EQ(::poll(&look, 1, patience_ms()), 1);
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
  EXPECT_NE(looked.error().message.find("the channel segment cannot be withdrawn"), std::string::npos)
      << looked.error().message;
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
  while (arrival.link->mapped(segment).size() != 8192 && monotonic_ns() < deadline)
    arrival.link->poll(monotonic_ns(), events);
  going_on.join();
  EXPECT_EQ(arrival.link->mapped(segment).size(), 8192u);
}

// A child without knowledge of channels that destroys the inherited object.
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
  // A host that unmaps it, or maps other memory in its place, harms only itself.
  const MutableBytes theirs = arrival.link->mapped(wire::channel_segment);
  const MutableBytes mine = (*host)->channel_memory();
  theirs[5000] = std::byte{1};
  ASSERT_NE(mmap(mine.data(), mine.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  EXPECT_EQ(mine[5000], std::byte{0});
  EXPECT_EQ(theirs[5000], std::byte{1});
}

// A host with a replaced library: it sends any frames after a proper handshake.
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
  // The link ends, and the host gets the reason.
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
  // The region in the agent's next frame, which has this type.
  RegionId answered(ControlType type, Status* why = nullptr) {
    for (const TimeNs until = soon(); monotonic_ns() < until;) {
      std::array<LinkEvent, 4> events;
      (void)there->poll(monotonic_ns(), events);
      ControlSocket::Frame frame;
      auto came = socket.next(frame);
      if (came && !*came) continue;
      EXPECT_TRUE(came) << came.error().message;
      EXPECT_EQ(came ? frame.type : ControlType{}, type);
      if (!came || frame.type != type) return 0;
      if (type == ControlType::segment_ok) return *wire::decode_segment_number(frame.payload);
      auto outcome = wire::decode_outcome(frame.payload);
      EXPECT_TRUE(outcome);
      if (why != nullptr) *why = std::move(outcome->status);
      return static_cast<RegionId>(outcome->token);
    }
    ADD_FAILURE() << "no answer";
    return 0;
  }
  // The error for the second segment, after the first (0: none) was accepted.
  std::string refused(RegionId first, RegionId second) {
    if (first != 0) {
      EXPECT_EQ(answered(ControlType::segment_ok), first);
    }
    Status why;
    EXPECT_EQ(answered(ControlType::segment_refused, &why), second);
    return why ? "it was not" : why.error().message;
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
  EXPECT_EQ(failure.message, "segment 1: the memfd has the seals GROW, it needs SHRINK, GROW, SEAL");
}

TEST_F(RawHost, SegmentShorterThanAnnounced) {
  open();
  announce({wire::segment_flag | 1, 8192, 0, 0}, memory_with(seals, 4096).get());
  EXPECT_EQ(ended().message, "segment 1: the memfd has 4096 bytes, 8192 were announced");
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
  EXPECT_EQ(refused(wire::segment_flag | 1, wire::segment_flag | 2),
            fmt::format("segment 2: its 8192 bytes and the {} of other segments are more than the {} allowed "
                        "(limits.segment_bytes_max)",
                        channel + 4096, channel + 8192));
  announce({wire::segment_flag | 3, 4096, 0, 0}, memory_with(seals, 4096).get());
  EXPECT_EQ(refused(0, wire::segment_flag | 3), "segment 3: at most 3 segments are allowed (limits.segments_max)");
  // The channel continues.
  const RegionId first = wire::segment_flag | 1, second = wire::segment_flag | 2;
  for (const RegionId& each : {first, second})
    ASSERT_TRUE(socket.send(ControlType::segment_gone, std::as_bytes(std::span(&each, 1))));
  announce({second, 8192, 0, 0}, memory_with(seals, 8192).get());
  EXPECT_EQ(answered(ControlType::segment_ok), second);
}

TEST_F(RawHost, SegmentsThatAreRefusedAndNotTakenBack) {
  open({.count_max = 1});
  const Fd memory = memory_with(seals, 4096);
  for (RegionId number = 1; number <= 257; ++number) announce({wire::segment_flag | number, 4096, 0, 0}, memory.get());
  EXPECT_EQ(ended().code, Error::too_large);
}

TEST_F(RawHost, SegmentsBeyondTheirUsersMappings) {
  agent.policy.received = std::make_shared<ReceivedFds>(ReceivedLimits{100, 100, 100, 2});
  open();
  announce({wire::segment_flag | 1, 4096, 0, 0}, memory_with(seals, 4096).get());
  announce({wire::segment_flag | 2, 4096, 0, 0}, memory_with(seals, 4096).get());
  EXPECT_NE(refused(wire::segment_flag | 1, wire::segment_flag | 2).find("limits.user_mappings_max"),
            std::string::npos);
}

TEST_F(RawHost, OffersBeyondItsUsersDescriptors) {
  agent.policy.received = std::make_shared<ReceivedFds>(ReceivedLimits{100, 2, 100, 100});
  open();
  const std::uint64_t number = 1;
  Fd file(memfd_create("offered", MFD_CLOEXEC));
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(socket.send(ControlType::offer, std::as_bytes(std::span(&number, 1)), file.get()));
  const LinkEvent first = await_kind(*there, LinkEvent::Kind::offered);
  EXPECT_EQ(first.status.error().code, Error::too_large);
  EXPECT_FALSE(first.fd);
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
  for (const ControlType type :
       {ControlType::hello, ControlType::proof, ControlType::welcome, ControlType::refusal, ControlType::read,
        ControlType::write, ControlType::read_done, ControlType::descriptor}) {
    open();
    const Fd memory = memory_with(seals, 4096);
    ASSERT_TRUE(socket.send(type, bytes_of("12345678"), descriptors_of(type) > 0 ? memory.get() : -1));
    const Failure failure = ended();
    EXPECT_EQ(failure.code, Error::protocol);
    EXPECT_EQ(failure.message, fmt::format("{}: unexpected frame on an open channel", control_type_name(type)));
  }
}

TEST_F(RawHost, OffersNobodyTakes) {
  open();
  const Fd memory = memory_with(seals, 4096);
  for (std::uint64_t i = 0; i < 200; ++i)
    ASSERT_TRUE(socket.send(ControlType::offer, std::as_bytes(std::span(&i, 1)), memory.get()));
  for (std::uint64_t i = 0; i < 200; ++i)
    EXPECT_EQ(await_kind(*there, LinkEvent::Kind::offered, [&] { (void)socket.flush(); }).token, i);
}

TEST_F(RawHost, GarbageEndsTheLinkOnly) {
  for (unsigned seed = 1; seed < 60; ++seed) {
    open();
    SeededRandom random(seed);
    std::vector<std::byte> bytes(8 + random.next() % 500);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random.next());
    bytes[4] = static_cast<std::byte>(random.next() % 20);  // often a valid type
    bytes[5] = bytes[6] = bytes[7] = bytes[1] = bytes[2] = bytes[3] = std::byte{};
    ASSERT_EQ(::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    socket.shut_down();
    const LinkEvent event = await_kind(*there, LinkEvent::Kind::closed);
    EXPECT_FALSE(event.status);
  }
}

}  // namespace
}  // namespace offpath::link
