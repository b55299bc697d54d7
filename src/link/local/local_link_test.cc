#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <map>
#include <numeric>
#include <utility>

#include "link/local/sealed_memory.h"
#include "testing/link/connected_pair.h"
#include "testing/link/emulated.h"
#include "wire/region.h"

namespace offpath::link {
namespace {

class LocalLink : public testing::Test, protected ConnectedPair {
 protected:
  void SetUp() override { meet({.name = "simulation"}); }
};

TEST_F(LocalLink, SaysWhatItIs) {
  OFP_NEEDS_KERNEL("process_vm_readv");
  EXPECT_EQ(hello.name, "simulation");
  EXPECT_EQ(host->welcome().agent_name, "test agent");
  EXPECT_EQ(host->welcome().incarnation, 77u);
  for (const LinkTraits* traits : {&host->traits(), &there->traits()}) {
    EXPECT_EQ(traits->name, "local");
    EXPECT_TRUE(traits->one_sided);
    EXPECT_FALSE(traits->staged);
    EXPECT_EQ(traits->host_threads, 0u);
  }
}

TEST_F(LocalLink, BothEndsSeeTheChannelSegment) {
  const MutableBytes mine = host->channel_memory();
  const MutableBytes theirs = there->mapped(wire::channel_segment);
  ASSERT_EQ(mine.size(), hello.layout.total_bytes());
  ASSERT_EQ(theirs.size(), mine.size());
  EXPECT_NE(mine.data(), theirs.data());
  mine[4096] = std::byte{42};
  EXPECT_EQ(theirs[4096], std::byte{42});
  theirs[64] = std::byte{43};
  EXPECT_EQ(mine[64], std::byte{43});
}

// Of two threads, one sleeps for the wake, while the other waits for its descriptor and reads the socket.
TEST_F(LocalLink, AWakeStaysWhenAnotherCallReadsTheSocket) {
  const auto readable = [&] {
    pollfd event{host->event_fd(), POLLIN, 0};
    return ::poll(&event, 1, 0) == 1;
  };
  const Fd file(::memfd_create("handed over", MFD_CLOEXEC));
  for (std::uint64_t ticket = 1; ticket <= 3; ++ticket) {
    there->wake();
    ASSERT_TRUE(there->hand_over(ticket, file.get()));
    ASSERT_TRUE(host->take_descriptor(ticket, soon()));
    EXPECT_TRUE(readable()) << "a program's loop is told";
    const TimeNs deadline = soon();
    host->wait(deadline);
    EXPECT_LT(monotonic_ns(), deadline) << "a thread that sleeps is told";
    ASSERT_TRUE(host->look());
    EXPECT_FALSE(readable()) << "each wake is told once";
  }
  ASSERT_TRUE(there->hand_over(4, file.get()));
  ASSERT_TRUE(host->take_descriptor(4, soon()));
  EXPECT_FALSE(readable()) << "a descriptor concerns only the call that waits for it";
}

TEST_F(LocalLink, ReadsAWholePlan) {
  OFP_NEEDS_KERNEL("process_vm_readv");
  std::vector<std::uint32_t> source(300'000);
  std::iota(source.begin(), source.end(), 0u);
  ASSERT_TRUE(announce(5, 1, source.data(), source.size() * 4));
  // More pieces than one system call takes, with gaps between them.
  std::vector<std::uint32_t> target(source.size());
  std::vector<ReadPiece> pieces;
  for (std::size_t i = 0; i + 100 <= source.size(); i += 100)
    pieces.push_back({5, 1, i * 4, reinterpret_cast<std::byte*>(&target[i]), 99 * 4});
  ASSERT_GT(pieces.size(), 2048u);
  there->read(9, pieces);
  const LinkEvent event = await_kind(*there, LinkEvent::Kind::read_done);
  EXPECT_EQ(event.token, 9u);
  ASSERT_TRUE(event.status) << event.status.error().message;
  for (std::size_t i = 0; i < source.size(); ++i) ASSERT_EQ(target[i], i % 100 == 99 ? 0 : source[i]) << i;
}

TEST_F(LocalLink, ReadsNeighboursAndSegmentsInOnePlan) {
  OFP_NEEDS_KERNEL("process_vm_readv");
  std::vector<std::byte> source(8192, std::byte{7}), target(8192 + 64);
  ASSERT_TRUE(announce(0, 1, source.data(), source.size()));
  host->channel_memory()[100] = std::byte{9};
  const ReadPiece pieces[] = {{0, 1, 0, target.data(), 4096},
                              {0, 1, 4096, target.data() + 4096, 4096},
                              {wire::channel_segment, 0, 100, target.data() + 8192, 1}};
  there->read(1, pieces);
  ASSERT_TRUE(await_kind(*there, LinkEvent::Kind::read_done).status);
  EXPECT_EQ(target[0], std::byte{7});
  EXPECT_EQ(target[8191], std::byte{7});
  EXPECT_EQ(target[8192], std::byte{9});
}

TEST_F(LocalLink, RefusesWhatWasNotAnnounced) {
  OFP_NEEDS_KERNEL("process_vm_readv");
  std::vector<std::byte> source(4096), target(8192);
  ASSERT_TRUE(announce(3, 7, source.data(), source.size()));
  EXPECT_EQ(read_one(*there, {4, 1, 0, target.data(), 1}).error().code, Error::unannounced);
  EXPECT_EQ(read_one(*there, {3, 6, 0, target.data(), 1}).error().code, Error::stale);
  EXPECT_EQ(read_one(*there, {3, 7, 1, target.data(), 4096}).error().code, Error::too_large);
  EXPECT_EQ(read_one(*there, {3, 7, ~0ull, target.data(), 2}).error().code, Error::too_large);
  EXPECT_EQ(write_one(*there, {3, 0, target.data(), 1}).error().code, Error::denied);
  EXPECT_EQ(write_one(*there, {wire::segment_flag | 9, 0, target.data(), 1}).error().code, Error::unannounced);
  EXPECT_TRUE(read_one(*there, {3, 7, 0, target.data(), 4096}));
}

TEST_F(LocalLink, FreedMemoryFailsThatReadOnly) {
  OFP_NEEDS_KERNEL("process_vm_readv");
  auto* memory =
      static_cast<std::byte*>(mmap(nullptr, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 5, 3 * 4096);
  ASSERT_TRUE(announce(1, 1, memory, 3 * 4096));
  munmap(memory + 4096, 4096);
  std::vector<std::byte> target(3 * 4096);
  const Status failed = read_one(*there, {1, 1, 0, target.data(), target.size()});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Error::unreadable);
  EXPECT_NE(failed.error().message.find("range 1 of 12288 bytes: no memory is mapped at its offset 4096"),
            std::string::npos)
      << failed.error().message;
  EXPECT_TRUE(read_one(*there, {1, 1, 8192, target.data(), 4096}));
  munmap(memory, 3 * 4096);
}

TEST_F(LocalLink, OneOfSeveralReadsGatheredFailsAlone) {
  OFP_NEEDS_KERNEL("process_vm_readv");
  auto* memory =
      static_cast<std::byte*>(mmap(nullptr, 5 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  for (int page = 0; page < 5; ++page) std::memset(memory + page * 4096, 10 + page, 4096);
  ASSERT_TRUE(announce(1, 1, memory, 5 * 4096));
  munmap(memory + 2 * 4096, 4096);
  std::vector<std::byte> target(8 * 4096);
  const auto piece = [&](std::uint64_t page, std::uint64_t to) {
    return ReadPiece{1, 1, page * 4096, target.data() + to * 4096, 4096};
  };
  const ReadPiece first[] = {piece(0, 0), piece(4, 1)}, second[] = {piece(1, 2), piece(2, 3), piece(3, 4)},
                  third[] = {piece(4, 5)};
  const ReadPiece fourth[] = {piece(0, 6), {2, 1, 0, target.data() + 7 * 4096, 4096}};
  there->read(1, first);
  there->read(2, second);
  there->read(4, fourth);
  there->read(3, third);
  std::map<std::uint64_t, Status> ended;
  std::array<LinkEvent, 8> events;
  for (std::size_t i = 0, count = there->poll(monotonic_ns(), events); i < count; ++i)
    ended.emplace(events[i].token, events[i].status);
  ASSERT_EQ(ended.size(), 4u);  // one poll reports all
  EXPECT_TRUE(ended.at(1));
  ASSERT_FALSE(ended.at(2));
  EXPECT_NE(ended.at(2).error().message.find("at its offset 8192"), std::string::npos) << ended.at(2).error().message;
  EXPECT_TRUE(ended.at(3));
  ASSERT_FALSE(ended.at(4));
  EXPECT_EQ(ended.at(4).error().code, Error::unannounced);
  EXPECT_EQ(target[0], std::byte{10});
  EXPECT_EQ(target[4096], std::byte{14});
  EXPECT_EQ(target[5 * 4096], std::byte{14});
  munmap(memory, 5 * 4096);
}

TEST_F(LocalLink, SegmentsComeAndGo) {
  auto memory = host->allocate(100'000);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->data()[99'999], std::byte{0});
  const RegionId segment = wire::segment_flag | 3;
  ASSERT_TRUE(announce_segment(segment, *memory));
  ASSERT_EQ(there->mapped(segment).size(), 100'000u);
  const std::uint64_t word = 0x0123'4567'89ab'cdef;
  ASSERT_TRUE(write_one(*there, {segment, 512, reinterpret_cast<const std::byte*>(&word), 8}));
  EXPECT_EQ(load<std::uint64_t>(memory->data() + 512), word);
  EXPECT_EQ(write_one(*there, {segment, 99'993, reinterpret_cast<const std::byte*>(&word), 8}).error().code,
            Error::too_large);

  host->retire_segment(segment);
  const TimeNs deadline = soon();
  std::array<LinkEvent, 4> events;
  while (!there->mapped(segment).empty() && monotonic_ns() < deadline) there->poll(monotonic_ns(), events);
  EXPECT_TRUE(there->mapped(segment).empty());
  EXPECT_EQ(write_one(*there, {segment, 0, reinterpret_cast<const std::byte*>(&word), 8}).error().code, Error::stale);
}

TEST_F(LocalLink, WakesBothWays) {
  host->wake();
  host->wake();
  await_kind(*there, LinkEvent::Kind::woken);

  pollfd look{host->event_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&look, 1, 0), 0);
  there->wake();
  EXPECT_EQ(::poll(&look, 1, patience_ms()), 1);
  host->wait(soon());
  EXPECT_TRUE(host->look());
  EXPECT_EQ(::poll(&look, 1, 0), 0);
}

// As the agent's loop sees it: each wake after a sleep is an edge, although earlier ones are not read.
TEST_F(LocalLink, EachWakeIsAnEdge) {
  const Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  ASSERT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, there->wake_fd(), &event), 0);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(epoll_wait(epoll.get(), &event, 1, 0), 0);
    host->wake();
    ASSERT_EQ(epoll_wait(epoll.get(), &event, 1, patience_ms()), 1);
  }
  there->on_wake();
  await_kind(*there, LinkEvent::Kind::woken);
}

TEST_F(LocalLink, WakesNobodyTakesDoNoHarm) {
  for (int i = 0; i < 20'000; ++i) there->wake();
  EXPECT_TRUE(host->look());
  for (int i = 0; i < 20'000; ++i) host->wake();
  await_kind(*there, LinkEvent::Kind::woken);
  EXPECT_TRUE(host->look());
}

TEST_F(LocalLink, DescriptorsCrossBothWays) {
  const Fd memory(memfd_create("frame", MFD_CLOEXEC));
  ASSERT_EQ(pwrite(memory.get(), "frame", 5, 0), 5);
  ASSERT_TRUE(there->hand_over(11, memory.get()));
  ASSERT_TRUE(there->hand_over(12, memory.get()));
  auto twelve = host->take_descriptor(12, soon());
  auto eleven = host->take_descriptor(11, soon());
  ASSERT_TRUE(eleven && twelve);
  char text[5];
  ASSERT_EQ(pread(eleven->get(), text, 5, 0), 5);
  EXPECT_EQ(std::string_view(text, 5), "frame");
  EXPECT_EQ(fcntl(eleven->get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(host->take_descriptor(13, monotonic_ns()).error().code, Error::timeout);

  ASSERT_TRUE(host->offer(21, memory.get()));
  const LinkEvent offered = await_kind(*there, LinkEvent::Kind::offered);
  EXPECT_EQ(offered.token, 21u);
  ASSERT_EQ(pread(offered.fd.get(), text, 5, 0), 5);
}

TEST_F(LocalLink, DescriptorsBeyondTheSocketsBufferWait) {
  const Fd memory(memfd_create("frame", MFD_CLOEXEC));
  std::uint64_t sent = 0;
  for (; sent < 700; ++sent) ASSERT_TRUE(there->hand_over(sent, memory.get()));
  std::array<LinkEvent, 4> events;
  for (std::uint64_t i = 0; i < sent; ++i) {
    there->poll(monotonic_ns(), events);
    auto taken = host->take_descriptor(i, monotonic_ns());
    for (int tries = 0; !taken && tries < 1000; ++tries) {
      there->poll(monotonic_ns() + second_ns, events);
      taken = host->take_descriptor(i, monotonic_ns());
    }
    ASSERT_TRUE(taken) << i << ": " << taken.error().message;
  }
}

// The agent may sleep while output waits, and the program's reads wake no process.
TEST_F(LocalLink, DescriptorsThatWaitAreSentWhenTheProgramReadsAgain) {
  const auto has_life_event = [&](int wait_ms) {
    pollfd look{there->life_fd(), POLLIN, 0};
    return ::poll(&look, 1, wait_ms) == 1;
  };
  there->on_watched();
  const Fd memory(memfd_create("frame", MFD_CLOEXEC));
  for (std::uint64_t ticket = 0; ticket < 700; ++ticket) ASSERT_TRUE(there->hand_over(ticket, memory.get()));
  std::array<LinkEvent, 4> events;
  there->poll(monotonic_ns(), events);
  EXPECT_FALSE(has_life_event(0)) << "the socket is full";
  for (std::uint64_t ticket = 0; ticket < 700; ++ticket) {
    auto taken = host->take_descriptor(ticket, monotonic_ns());
    while (!taken && has_life_event(patience_ms())) {
      there->on_readable();
      there->poll(monotonic_ns(), events);
      taken = host->take_descriptor(ticket, monotonic_ns());
    }
    ASSERT_TRUE(taken) << ticket << ": " << taken.error().message;
  }
  EXPECT_FALSE(has_life_event(0)) << "nothing waits any more";
  OFP_NEEDS_KERNEL("process_vm_readv");
  std::vector<std::byte> bytes(64);
  ASSERT_TRUE(announce(1, 1, bytes.data(), 64));
  EXPECT_TRUE(read_one(*there, {1, 1, 0, bytes.data(), 64})) << "room in the socket is no death";
}

// In a child that is killed at its first system call.
TEST_F(LocalLink, WatchedAndIdleItMakesNoSystemCall) {
  OFP_NEEDS_KERNEL("seccomp");
  there->on_watched();
  std::array<LinkEvent, 4> events;
  const TimeNs now = monotonic_ns();
  there->poll(now, events);
  const auto ends_well = [&](const std::function<void()>& before) {
    const pid_t child = fork();
    if (child == 0) {
      sock_filter lines[] = {
          BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      };
      const sock_fprog filter{std::size(lines), lines};
      if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        _exit(2);
      before();
      for (TimeNs later = 1; later <= 10'000; ++later) there->poll(now + later * millisecond_ns, events);
      ::syscall(SYS_exit_group, 0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  };
  EXPECT_TRUE(ends_well([] {}));
  EXPECT_FALSE(ends_well([&] { there->on_readable(); })) << "a look is one";
}

TEST_F(LocalLink, ClosingTellsTheOtherEnd) {
  OFP_NEEDS_KERNEL("process_vm_readv");
  std::vector<std::byte> bytes(64);
  ASSERT_TRUE(announce(1, 1, bytes.data(), 64));
  host->close();
  const ReadPiece piece{1, 1, 0, bytes.data(), 64};
  there->read(1, {&piece, 1});
  std::array<LinkEvent, 4> events;
  ASSERT_EQ(there->poll(monotonic_ns(), events), 2u);
  EXPECT_EQ(events[0].kind, LinkEvent::Kind::read_done);
  EXPECT_EQ(events[0].status.error().code, Error::peer_lost);
  EXPECT_EQ(events[1].kind, LinkEvent::Kind::closed);
  EXPECT_EQ(events[1].status.error().code, Error::peer_lost);
  there->read(2, {&piece, 1});
  there->wake();
  EXPECT_EQ(there->poll(monotonic_ns(), events), 0u);
  EXPECT_EQ(host->look().error().code, Error::closed);
}

TEST_F(LocalLink, AgentClosingTellsTheHost) {
  there->close();
  host->wait(soon());
  EXPECT_EQ(host->look().error().code, Error::peer_lost);
  EXPECT_EQ(host->look().error().code, Error::peer_lost);
  pollfd look{host->event_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&look, 1, 0), 1);
}

TEST_F(LocalLink, AChildThatAbandonsHarmsNobody) {
  OFP_NEEDS_KERNEL("process_vm_readv");
  const pid_t child = fork();
  if (child == 0) {
    host->abandon();
    const bool refused = host->look().error().code == Error::forked;
    host.reset();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  there->wake();
  host->wait(soon());
  EXPECT_TRUE(host->look());
  std::vector<std::byte> bytes(64);
  ASSERT_TRUE(announce(1, 1, bytes.data(), 64));
  EXPECT_TRUE(read_one(*there, {1, 1, 0, bytes.data(), 64}));
}

// The agent has no descriptor left for a program that has just been welcomed: that program's channel ends with the
// reason.
TEST(LocalLinkResources, WithoutADescriptorForItsLifeAChannelEnds) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  const Fd host(ends[1]);
  auto memory = allocate_sealed(65536);
  ASSERT_TRUE(memory);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  LocalAgentLink link(ControlSocket(Fd(ends[0]), ControlSocket::Kind::unix_socket), Fd(), Peer{},
                      DirectReads{false, "tested"}, std::move(*memory), 0, SegmentLimits{});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  std::array<LinkEvent, 4> events;
  ASSERT_EQ(link.poll(0, events), 1u);
  EXPECT_EQ(events[0].kind, LinkEvent::Kind::closed);
  ASSERT_FALSE(events[0].status);
  EXPECT_EQ(events[0].status.error().code, Error::no_memory);
}

}  // namespace
}  // namespace offpath::link
