#include <fcntl.h>
#include <linux/filter.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <numeric>

#include "link/stream/stream_agent_link.h"
#include "link/stream/stream_host_link.h"
#include "link/stream/stream_threads.h"
#include "testing/link/certificate.h"
#include "testing/link/connected_pair.h"
#include "wire/region.h"

namespace offpath::link {
namespace {

// Over TCP, and over TLS.
class StreamLink : public testing::TestWithParam<const char*>, protected ConnectedPair {
 protected:
  StreamLink() : ConnectedPair(GetParam() + std::string(":127.0.0.1:0")) {}

  void SetUp() override {
    const std::string key = directory.write("key", "a key that both of them know\n");
    agent.policy.key = std::move(*SharedKey::load(key));
    const std::string certificate = directory.file("certificate"), private_key = directory.file("private_key");
    write_test_certificate(certificate, private_key, "IP:127.0.0.1");
    agent.policy.tls = std::move(*TlsContext::for_agent(certificate, private_key));
    meet({.name = "simulation", .key_file = key, .tls_ca_file = certificate});
  }

  // The effect of the requests. A busy socket, as while the host's thread uses its TLS session, takes only the wake:
  // the requests are then sent again.
  LinkEvent wake_with(const std::vector<std::byte>& requests) {
    for (;;) {
      host->wake_with(requests);
      LinkEvent event = await_event(*there, [](const LinkEvent& each) {
        return each.kind == LinkEvent::Kind::woken || each.kind == LinkEvent::Kind::closed;
      });
      if (event.kind == LinkEvent::Kind::closed || !event.requests.empty()) return event;
    }
  }
};

TEST_P(StreamLink, SaysWhatItIs) {
  for (const LinkTraits* traits : {&host->traits(), &there->traits()}) {
    EXPECT_EQ(traits->name, "tcp");
    EXPECT_FALSE(traits->one_sided);
    EXPECT_FALSE(traits->staged);
    EXPECT_EQ(traits->host_threads, 1u);
  }
  EXPECT_EQ(host->welcome().direct, 0);
  EXPECT_TRUE(there->mapped(wire::channel_segment).empty());
  EXPECT_EQ(there->hand_over(1, 0).error().code, Error::unsupported);
  EXPECT_EQ(host->offer(1, 0).error().code, Error::unsupported);
}

TEST_P(StreamLink, ReadsAWholePlan) {
  std::vector<std::uint32_t> source(1'000'000);
  std::iota(source.begin(), source.end(), 0u);
  ASSERT_TRUE(announce(5, 1, source.data(), source.size() * 4));
  // More pieces than one request takes.
  std::vector<std::uint32_t> target(source.size());
  std::vector<ReadPiece> pieces;
  for (std::size_t i = 0; i + 100 <= source.size(); i += 100)
    pieces.push_back({5, 1, i * 4, reinterpret_cast<std::byte*>(&target[i]), 99 * 4});
  ASSERT_GT(pieces.size(), 2u * wire::TransferRequest::pieces_max);
  there->read(9, pieces);
  const LinkEvent event = await_kind(*there, LinkEvent::Kind::read_done);
  EXPECT_EQ(event.token, 9u);
  ASSERT_TRUE(event.status) << event.status.error().message;
  for (std::size_t i = 0; i < source.size(); ++i) ASSERT_EQ(target[i], i % 100 == 99 ? 0 : source[i]) << i;
}

TEST_P(StreamLink, ManyReadsOfManyMegabytesAtOnce) {
  std::vector<std::uint64_t> source(5'000'000);
  std::iota(source.begin(), source.end(), 1ull << 40);
  ASSERT_TRUE(announce(1, 1, source.data(), source.size() * 8));
  std::vector<std::uint64_t> target(source.size());
  const std::uint64_t slice = 100'000;
  for (std::uint64_t i = 0; i < source.size(); i += slice) {
    const ReadPiece piece{1, 1, i * 8, reinterpret_cast<std::byte*>(&target[i]), slice * 8};
    there->read(i, {&piece, 1});
  }
  for (std::uint64_t i = 0; i < source.size(); i += slice) {
    const LinkEvent event = await_kind(*there, LinkEvent::Kind::read_done);
    EXPECT_EQ(event.token, i);
    ASSERT_TRUE(event.status);
  }
  EXPECT_EQ(source, target);
}

TEST_P(StreamLink, RefusesWhatWasNotAnnounced) {
  std::vector<std::byte> source(4096), target(8192);
  ASSERT_TRUE(announce(3, 7, source.data(), source.size()));
  EXPECT_EQ(read_one(*there, {4, 1, 0, target.data(), 1}).error().code, Error::unannounced);
  EXPECT_EQ(read_one(*there, {3, 6, 0, target.data(), 1}).error().code, Error::stale);
  EXPECT_EQ(read_one(*there, {3, 7, 1, target.data(), 4096}).error().code, Error::too_large);
  EXPECT_EQ(write_one(*there, {3, 0, target.data(), 1}).error().code, Error::denied);
  EXPECT_TRUE(read_one(*there, {3, 7, 0, target.data(), 4096}));
}

TEST_P(StreamLink, TheHostChecksWhatTheAgentBelieves) {
  // The agent's end holds wrong regions, as a compromised agent would.
  std::vector<std::byte> source(4096), target(1 << 20);
  ASSERT_TRUE(host->announce_range(3, 7, source.data(), source.size()));
  ASSERT_TRUE(there->attach_range(3, 7, 0, 1 << 20, 0));
  ASSERT_TRUE(there->attach_range(4, 1, 0, 1 << 20, 0));
  EXPECT_EQ(read_one(*there, {3, 7, 4000, target.data(), 97}).error().code, Error::too_large);
  EXPECT_EQ(read_one(*there, {4, 1, 0, target.data(), 1}).error().code, Error::unannounced);
  EXPECT_TRUE(read_one(*there, {3, 7, 4000, target.data(), 96}));
  host->retire_range(3, 7);
  EXPECT_EQ(read_one(*there, {3, 7, 0, target.data(), 96}).error().code, Error::stale);
  // A plan whose third piece is refused: its earlier pieces do not count, and the next plan works.
  ASSERT_TRUE(host->announce_range(3, 8, source.data(), source.size()));
  ASSERT_TRUE(there->attach_range(3, 8, 0, 1 << 20, 0));
  const ReadPiece pieces[] = {
      {3, 8, 0, target.data(), 4096}, {3, 8, 0, target.data(), 4096}, {3, 8, 0, target.data(), 1 << 20}};
  there->read(1, pieces);
  EXPECT_EQ(await_kind(*there, LinkEvent::Kind::read_done).status.error().code, Error::too_large);
  EXPECT_TRUE(read_one(*there, {3, 8, 0, target.data(), 4096}));
}

TEST_P(StreamLink, FreedMemoryFailsThatReadOnly) {
  constexpr std::size_t bytes = 4 << 20;
  auto* memory =
      static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 5, bytes);
  ASSERT_TRUE(announce(1, 1, memory, bytes));
  std::vector<std::byte> target(bytes);
  const std::size_t hole = 3 << 20;
  munmap(memory + hole, 4096);
  for (int round = 0; round < 3; ++round) {
    const Status failed = read_one(*there, {1, 1, 0, target.data(), bytes});
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, Error::unreadable);
    EXPECT_NE(failed.error().message.find(
                  fmt::format("range 1 of {} bytes: no memory is mapped at its offset {}", bytes, hole)),
              std::string::npos)
        << failed.error().message;
    ASSERT_TRUE(read_one(*there, {1, 1, hole + 4096, target.data(), 4096}));
    EXPECT_EQ(target[0], std::byte{5});
  }
  munmap(memory, bytes);
}

TEST_P(StreamLink, WritesToSegments) {
  auto memory = host->allocate(8 << 20);
  ASSERT_TRUE(memory);
  const RegionId segment = wire::segment_flag | 1;
  ASSERT_TRUE(announce_segment(segment, *memory));
  std::vector<std::uint64_t> source(memory->length() / 8);
  std::iota(source.begin(), source.end(), 7ull);
  ASSERT_TRUE(write_one(*there, {segment, 0, reinterpret_cast<const std::byte*>(source.data()), memory->length()}));
  EXPECT_EQ(std::memcmp(memory->data(), source.data(), memory->length()), 0);

  std::vector<WritePiece> pieces;
  for (std::size_t i = 0; i < 5000; ++i)
    pieces.push_back({segment, i * 64, reinterpret_cast<const std::byte*>(&source[100'000 + i]), 8});
  there->write(3, pieces);
  ASSERT_TRUE(await_kind(*there, LinkEvent::Kind::write_done).status);
  for (std::size_t i = 0; i < 5000; ++i) ASSERT_EQ(load<std::uint64_t>(memory->data() + i * 64), source[100'000 + i]);

  host->retire_segment(segment);
  const auto late = write_one(*there, {segment, 0, reinterpret_cast<const std::byte*>(source.data()), 1 << 20});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Error::stale);
}

TEST_P(StreamLink, WritesBecomeVisibleInOrder) {
  auto& tail = *reinterpret_cast<std::uint64_t*>(host->channel_memory().data() + 128);
  auto& slot = *reinterpret_cast<std::uint64_t*>(host->channel_memory().data() + 8192);
  constexpr std::uint64_t rounds = 2000;
  std::atomic<std::uint64_t> disorder = 0;
  std::thread program([&] {
    for (std::uint64_t seen = 0; seen < rounds;) {
      seen = std::atomic_ref<std::uint64_t>(tail).load(std::memory_order_acquire);
      if (std::atomic_ref<std::uint64_t>(slot).load(std::memory_order_acquire) < seen) ++disorder;
    }
  });
  std::vector<std::uint64_t> values(rounds + 1);
  std::uint64_t done = 0;
  for (std::uint64_t i = 1; i <= rounds; ++i) {
    values[i] = i;
    const auto* value = reinterpret_cast<const std::byte*>(&values[i]);
    const WritePiece pieces[] = {{wire::channel_segment, 8192, value, 8}, {wire::channel_segment, 128, value, 8}};
    there->write(i, pieces);
    if (i - done > 100) done += await_kind(*there, LinkEvent::Kind::write_done).token > 0;
  }
  const TimeNs deadline = soon();
  std::array<LinkEvent, 16> events;
  while (std::atomic_ref<std::uint64_t>(tail).load() < rounds && monotonic_ns() < deadline)
    there->poll(monotonic_ns(), events);
  program.join();
  EXPECT_EQ(disorder, 0u);
}

// Replies and lines: they end when they are sent, and the host says nothing about them.
TEST_P(StreamLink, WritesToTheChannelSegmentAreNotAnswered) {
  auto memory = host->allocate(4096);
  ASSERT_TRUE(memory);
  const RegionId segment = wire::segment_flag | 1;
  ASSERT_TRUE(announce_segment(segment, *memory));
  std::array<LinkEvent, 4> events;
  while (there->poll(monotonic_ns(), events) != 0) {
  }
  for (std::uint64_t round = 1; round <= 100; ++round) {
    const WritePiece piece{wire::channel_segment, 128, reinterpret_cast<const std::byte*>(&round), sizeof round};
    there->write(round, {&piece, 1});
    ASSERT_EQ(there->poll(monotonic_ns(), events), 1u);
    ASSERT_EQ(events[0].kind, LinkEvent::Kind::write_done);
    ASSERT_EQ(events[0].token, round);
  }
  // The answer to a write to another segment is the first one that arrives; those before it have taken effect then.
  const std::uint64_t other = 7;
  ASSERT_TRUE(write_one(*there, {segment, 0, reinterpret_cast<const std::byte*>(&other), sizeof other}));
  EXPECT_EQ(load<std::uint64_t>(host->channel_memory().data() + 128), 100u);
  pollfd look{there->event_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&look, 1, 0), 0);
}

// An agent that believes in a larger channel segment than the program has.
TEST(StreamServer, AWriteBeyondTheChannelSegmentIsAnsweredAndEndsTheLink) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  auto memory = allocate_shared(4096);
  ASSERT_TRUE(memory);
  auto host = StreamHostLink::create(ControlSocket(Fd(fds[0]), ControlSocket::Kind::network), std::move(*memory), {});
  ASSERT_TRUE(host);
  auto agent = StreamAgentLink::create(ControlSocket(Fd(fds[1]), ControlSocket::Kind::network), 8192, {}, "a test");
  ASSERT_TRUE(agent);
  const std::uint64_t word = 1;
  for (const std::uint64_t offset : {0u, 4096u}) {
    const WritePiece piece{wire::channel_segment, offset, reinterpret_cast<const std::byte*>(&word), sizeof word};
    (*agent)->write(offset, {&piece, 1});
  }
  const LinkEvent closed = await_kind(**agent, LinkEvent::Kind::closed);
  EXPECT_EQ(closed.status.error().code, Error::too_large) << closed.status.error().message;
  EXPECT_EQ(load<std::uint64_t>((*host)->channel_memory().data()), 1u);
}

TEST_P(StreamLink, WakesBothWays) {
  for (int i = 0; i < 1000; ++i) host->wake();
  await_kind(*there, LinkEvent::Kind::woken);
  pollfd look{host->event_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&look, 1, 0), 0);
  there->wake();
  EXPECT_EQ(::poll(&look, 1, patience_ms()), 1);
  host->wait(soon());
  EXPECT_TRUE(host->look());
  EXPECT_EQ(::poll(&look, 1, 0), 0);
}

TEST_P(StreamLink, AWakeCarriesRequests) {
  std::vector<std::byte> requests(sizeof(wire::SentRequests) + 3 * wire::slot_bytes, std::byte{7});
  EXPECT_EQ(wake_with(requests).requests, requests);
  host->wake();
  EXPECT_TRUE(await_kind(*there, LinkEvent::Kind::woken).requests.empty());
}

// They arrive together, and are one event: it may not hide that more was posted than it carries.
TEST_P(StreamLink, AWakeAfterOneThatCarriesRequestsAsksForALook) {
  const std::vector<std::byte> requests(sizeof(wire::SentRequests) + 3 * wire::slot_bytes, std::byte{7});
  host->wake_with(requests);
  host->wake();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // both are there, or the events come apart
  bool last_carries = true;
  for (unsigned events = 0; events < 2 && last_carries; ++events)
    last_carries = !await_kind(*there, LinkEvent::Kind::woken).requests.empty();
  EXPECT_FALSE(last_carries);
}

TEST_P(StreamLink, MoreRequestsThanAWakeCarriesEndTheLink) {
  const std::vector<std::byte> requests(sizeof(wire::SentRequests) + 16 * wire::slot_bytes);
  const LinkEvent closed = wake_with(requests);
  EXPECT_NE(closed.status.error().message.find("requests: 1048 bytes, 24 and at most 15 slots are allowed"),
            std::string::npos)
      << closed.status.error().message;
}

TEST_P(StreamLink, WakesFromManyThreadsWhileBytesMove) {
  std::vector<std::byte> source(32 << 20), target(source.size());
  ASSERT_TRUE(announce(1, 1, source.data(), source.size()));
  std::atomic<bool> stop = false;
  std::vector<std::thread> programs;
  for (int i = 0; i < 3; ++i)
    programs.emplace_back([&] {
      while (!stop) host->wake();
    });
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(read_one(*there, {1, 1, 0, target.data(), target.size()}));
  stop = true;
  for (auto& program : programs) program.join();
  EXPECT_TRUE(host->look());
}

TEST_P(StreamLink, ASleepingLoopHearsOfEverything) {
  std::vector<std::byte> source(16 << 20), target(source.size());
  ASSERT_TRUE(announce(1, 1, source.data(), source.size()));
  const ReadPiece piece{1, 1, 0, target.data(), target.size()};
  there->read(1, {&piece, 1});
  bool done = false;
  while (!done) {
    std::array<LinkEvent, 4> events;
    const std::size_t count = there->poll(monotonic_ns(), events);
    for (std::size_t i = 0; i < count; ++i) done = done || events[i].kind == LinkEvent::Kind::read_done;
    if (done) break;
    pollfd look{there->event_fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&look, 1, patience_ms()), 1);
  }
}

TEST_P(StreamLink, ClosingTellsTheOtherEnd) {
  std::vector<std::byte> source(64 << 20), target(source.size());
  ASSERT_TRUE(announce(1, 1, source.data(), source.size()));
  const ReadPiece piece{1, 1, 0, target.data(), target.size()};
  there->read(1, {&piece, 1});
  host->close();
  std::vector<LinkEvent> all;
  await_event(*there, [&](const LinkEvent& event) {
    all.push_back({event.kind, event.token, event.status, Fd()});
    return event.kind == LinkEvent::Kind::closed;
  });
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].kind, LinkEvent::Kind::read_done);
  EXPECT_EQ(all[0].status.error().code, Error::peer_lost);
  EXPECT_EQ(all[1].status.error().code, Error::peer_lost);
  EXPECT_EQ(host->look().error().code, Error::closed);
}

TEST_P(StreamLink, AgentClosingTellsTheHost) {
  there->close();
  pollfd look{host->event_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&look, 1, patience_ms()), 1);
  EXPECT_EQ(host->look().error().code, Error::peer_lost);
  EXPECT_EQ(::poll(&look, 1, 0), 1);
  auto memory = host->allocate(4096);
  ASSERT_TRUE(memory);
  EXPECT_EQ(host->announce_segment(wire::segment_flag | 1, *memory, soon()).error().code, Error::peer_lost);
}

TEST_P(StreamLink, AnAgentThatStopsReadingDoesNotHoldClose) {
  std::vector<std::byte> source(64 << 20), target(source.size());
  ASSERT_TRUE(announce(1, 1, source.data(), source.size()));
  const ReadPiece piece{1, 1, 0, target.data(), target.size()};
  there->read(1, {&piece, 1});
  const timespec pause{0, 50'000'000};
  nanosleep(&pause, nullptr);  // until the host's thread has filled the socket
  host->wake();
  host->close();
  EXPECT_EQ(host->look().error().code, Error::closed);
}

TEST_P(StreamLink, AChildThatAbandonsHarmsNobody) {
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
  std::vector<std::byte> bytes(64);
  ASSERT_TRUE(announce(1, 1, bytes.data(), 64));
  EXPECT_TRUE(read_one(*there, {1, 1, 0, bytes.data(), 64}));
}

INSTANTIATE_TEST_SUITE_P(Over, StreamLink, testing::Values("tcp", "tls"),
                         [](const auto& chosen) { return std::string(chosen.param); });

class StreamLinkOfSilence : public StreamLink {
 protected:
  StreamLinkOfSilence() { agent.policy.silence_ns = 2 * second_ns; }

  // The host sends until the agent's buffers are full, and its window is closed.
  void close_window() {
    ASSERT_TRUE(announce(1, 1, source.data(), source.size()));
    const ReadPiece piece{1, 1, 0, target.data(), target.size()};
    there->read(1, {&piece, 1});
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  // From now on nothing that one machine sends reaches the other.
  void cut() const {
    sockaddr_in own{}, peer{};
    socklen_t length = sizeof own;
    ASSERT_EQ(::getsockname(agent.listener.get(), reinterpret_cast<sockaddr*>(&own), &length), 0);
    const auto port = own.sin_port;
    int found = 0;
    for (int fd = 3; fd < 1024; ++fd) {
      socklen_t of_own = sizeof own, of_peer = sizeof peer;
      if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &of_own) != 0 || own.sin_family != AF_INET) continue;
      if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &of_peer) != 0) continue;
      if (own.sin_port != port && peer.sin_port != port) continue;
      sock_filter drop{BPF_RET | BPF_K, 0, 0, 0};
      const sock_fprog program{1, &drop};
      ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
      ++found;
    }
    ASSERT_EQ(found, 2);
  }
  void await_loss() {
    for (const TimeNs until = soon(); host->look() && monotonic_ns() < until;)
      host->wait(monotonic_ns() + 100 * millisecond_ns);
    const Status lost = host->look();
    ASSERT_FALSE(lost);
    EXPECT_EQ(lost.error().code, Error::peer_lost);
    EXPECT_NE(lost.error().message.find("for 2 s"), std::string::npos) << lost.error().message;
  }

  std::vector<std::byte> source = std::vector<std::byte>(32 << 20, std::byte{3});
  std::vector<std::byte> target = std::vector<std::byte>(32 << 20);
};

// A debugger stops it, or it gets no processor: its machine answers.
TEST_P(StreamLinkOfSilence, AProcessThatReadsLateIsWaitedFor) {
  close_window();
  std::this_thread::sleep_for(std::chrono::seconds(4));
  EXPECT_TRUE(host->look());
  const LinkEvent event = await_kind(*there, LinkEvent::Kind::read_done);
  ASSERT_TRUE(event.status) << event.status.error().message;
  EXPECT_EQ(source, target);
}

TEST_P(StreamLinkOfSilence, AMachineThatFallsSilentWhileItsWindowIsClosedIsGivenUp) {
  close_window();
  cut();
  await_loss();
}

TEST_P(StreamLinkOfSilence, AMachineThatFallsSilentIsGivenUpByWhoSends) {
  cut();
  host->wake();
  await_loss();
}

INSTANTIATE_TEST_SUITE_P(Over, StreamLinkOfSilence, testing::Values("tcp", "tls"),
                         [](const auto& chosen) { return std::string(chosen.param); });

// The agent's first look may arrive together with its welcome, so that no further byte announces it.
TEST(StreamThreads, FramesThatCameWithTheHandshakeAreServed) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  ControlSocket socket(Fd(fds[0]), ControlSocket::Kind::network);
  auto agent = StreamAgentLink::create(ControlSocket(Fd(fds[1]), ControlSocket::Kind::network), 4096, {}, "a test");
  ASSERT_TRUE(agent);
  const std::uint64_t word = 7;
  (*agent)->wake();
  const WritePiece piece{wire::channel_segment, 0, reinterpret_cast<const std::byte*>(&word), sizeof word};
  (*agent)->write(1, {&piece, 1});
  ControlSocket::Frame frame;
  ASSERT_TRUE(socket.next(frame).value());
  ASSERT_EQ(frame.type, wire::ControlType::wake);  // the write is in the socket's buffer now
  auto threads = StreamThreads::create();
  auto memory = allocate_shared(4096);
  ASSERT_TRUE(threads && memory);
  auto host = StreamHostLink::create(std::move(socket), std::move(*memory), {}, *threads);
  ASSERT_TRUE(host);
  const auto written = [&] {
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>((*host)->channel_memory().data())).load();
  };
  for (const TimeNs until = soon(); written() != word && monotonic_ns() < until;) std::this_thread::yield();
  EXPECT_EQ(written(), word);
}

// Twenty links of one process: a few threads serve them all, and a link whose agent reads nothing delays no other.
TEST(StreamThreads, AFewServeManyLinksAndAStuckOneDelaysNoOther) {
  constexpr std::size_t links = 20;
  TestDirectory directory;
  const std::string key = directory.write("key", "a key that both of them know\n");
  TestAgent agent("tcp:127.0.0.1:0");
  agent.policy.key = std::move(*SharedKey::load(key));
  auto threads = StreamThreads::create();
  ASSERT_TRUE(threads);
  const HostOptions options{.name = "simulation", .key_file = key, .stream_threads = *threads};
  std::vector<std::unique_ptr<HostLink>> hosts;
  std::vector<std::unique_ptr<AgentLink>> agents;
  for (std::size_t i = 0; i < links; ++i) {
    auto [host, arrival] = agent.meet(options);
    ASSERT_TRUE(host);
    ASSERT_TRUE(arrival.link);
    hosts.push_back(std::move(*host));
    agents.push_back(std::move(arrival.link));
    agents.back()->on_readable();
  }
  EXPECT_LE((*threads)->alive(), 4u);
  const auto read_from = [&](std::size_t at, MutableBytes to) {
    const ReadPiece piece{wire::channel_segment, 0, 0, to.data(), to.size()};
    agents[at]->read(at, {&piece, 1});
  };
  const auto finished = [&](std::size_t at) {
    std::array<LinkEvent, 4> events;
    for (const TimeNs until = soon(); monotonic_ns() < until;) {
      agents[at]->on_readable();
      if (agents[at]->poll(monotonic_ns(), events) == 0) continue;
      return events[0].kind == LinkEvent::Kind::read_done && events[0].status.has_value();
    }
    return false;
  };
  // The first asks for much and takes nothing, so a thread stays with it.
  std::vector<std::byte> much(hosts[0]->channel_memory().size());
  for (int i = 0; i < 60; ++i) read_from(0, much);
  for (int round = 0; round < 5; ++round) {
    for (std::size_t at = 1; at < links; ++at) {
      hosts[at]->channel_memory()[8] = static_cast<std::byte>(round * 20 + static_cast<int>(at));
      std::array<std::byte, 64> bytes{};
      read_from(at, bytes);
      ASSERT_TRUE(finished(at)) << "link " << at;
      EXPECT_EQ(bytes[8], hosts[at]->channel_memory()[8]);
    }
  }
  EXPECT_LE((*threads)->alive(), 5u);
  // The end of one is its own.
  agents[1]->close();
  const TimeNs until = soon();
  while (hosts[1]->look() && monotonic_ns() < until) hosts[1]->wait(monotonic_ns() + millisecond_ns);
  EXPECT_FALSE(hosts[1]->look());
  std::array<std::byte, 64> bytes{};
  read_from(2, bytes);
  EXPECT_TRUE(finished(2));
  hosts.clear();
}

}  // namespace
}  // namespace offpath::link
