// Programs' connections from end to end: an agent process with a device in a network namespace, programs on channels to
// it, and Linux's own TCP as the peer in another. Skipped, with the reason, where no network namespaces can be made.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "base/sent_fds.h"
#include "base/sleep_flag.h"
#include "beside_the_kernel.h"
#include "connections/sockets.h"
#include "hostile_program.h"
#include "kernel_peer.h"
#include "link/address.h"
#include "link/handshake/handshake.h"
#include "link/local/sealed_memory.h"
#include "testing/link/emulated.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/tcp_messages.h"

extern char** environ;

namespace offpath::kernel_test {
namespace {

using channel::HostEnd;
using channel::SocketArea;
using channel::Sockets;
using tcp::Endpoint;

const Endpoint own{tcp::test_address(0x0a090002), 7000};
constexpr std::uint32_t flows = 64;  // of a program
const SocketArea::Endpoint kernel_server{tcp::test_address(0x0a090001), 7001};

class AgentProcess {
 public:
  explicit AgentProcess(std::uint32_t cores)
      : directory_(std::filesystem::temp_directory_path() / fmt::format("offpath-tcp-{}", getpid())) {
    std::filesystem::create_directory(directory_);
    std::filesystem::permissions(directory_, std::filesystem::perms::owner_all);
    int pipe_ends[2];
    OFP_ASSERT(pipe(pipe_ends) == 0);
    Fd ready(pipe_ends[0]);
    const std::string at = address(), tell = std::to_string(pipe_ends[1]),
                      of_cores = fmt::format("tcp.cores={}", cores);
    const char* const own_address = tcp::tests_ipv6() ? "tcp.address6=fd00::a09:2/120" : "tcp.address=10.9.0.2/24";
    std::vector<const char*> arguments = {OFFPATH_AGENT_PROGRAM, "--listen", at.c_str(),        "--ready-fd",
                                          tell.c_str(),          "--set",    "tcp.device=near", "--set",
                                          own_address,           "--set",    of_cores.c_str(),  nullptr};
    if (tcp::tests_ipv6()) arguments.insert(arguments.end() - 1, {"--set", "tcp.gateway6=none"});
    good_ =
        posix_spawn(&pid_, OFFPATH_AGENT_PROGRAM, nullptr, nullptr, const_cast<char**>(arguments.data()), environ) == 0;
    close(pipe_ends[1]);
    char byte;
    good_ = good_ && read(ready.get(), &byte, 1) == 1;
  }
  ~AgentProcess() {
    if (pid_ > 0) kill(pid_, SIGTERM), waitpid(pid_, nullptr, 0);
    std::filesystem::remove_all(directory_);
  }
  AgentProcess(const AgentProcess&) = delete;
  AgentProcess& operator=(const AgentProcess&) = delete;
  [[nodiscard]] bool good() const noexcept { return good_; }
  [[nodiscard]] std::string address() const { return "unix:" + (directory_ / "agent.sock").string(); }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

 private:
  std::filesystem::path directory_;
  pid_t pid_ = -1;
  bool good_ = false;
};

struct Program {
  explicit Program(const AgentProcess& agent) {
    link::HostOptions options;
    options.name = "program";
    auto link = link::connect(link::Address::parse(agent.address()).value(), options, link::soon());
    OFP_ASSERT(link);
    end = std::make_unique<HostEnd>(std::move(*link), options.layout);
    open();
  }
  // Opens connections again on the same channel.
  void open() {
    sockets.reset();
    auto opened = Sockets::open(*end, {flows, 256 << 10}, link::soon());
    if (!opened)
      ADD_FAILURE() << opened.error().message;
    else
      sockets = std::move(*opened);
  }
  ~Program() {
    sockets.reset();
    end->close(second_ns);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Until it has another answer than would_block.
  template <class Call>
  auto patiently(const Call& call) {
    for (auto answer = call();; answer = call()) {
      if (answer || answer.error().code != Error::would_block) return answer;
      if (const Status waited = sockets->wait(link::soon()); !waited)
        return decltype(answer)(tl::unexpected(waited.error()));
    }
  }
  // When it returns peers are let in.
  Result<SocketArea::Handle> listen() {
    auto listener = sockets->area().listen(own.port, 8);
    while (listener && !sockets->area().look(*listener)->connected)
      if (!sockets->wait(link::soon()) && !sockets->area().look(*listener)->connected)
        return fail(Error::timeout, "no listener");
    return listener;
  }
  // Echoes data until the peer's end.
  void echo(SocketArea::Handle flow) {
    std::vector<std::byte> bytes(65'536);
    for (;;) {
      const auto got = patiently([&] { return sockets->area().receive(flow, bytes); });
      if (!got || *got == 0) break;
      for (std::size_t done = 0; done < *got;) {
        const auto sent =
            patiently([&] { return sockets->area().send(flow, Bytes(bytes).subspan(done, *got - done)); });
        if (!sent) return;
        done += *sent;
      }
    }
    sockets->area().close(flow);
  }

  std::unique_ptr<HostEnd> end;
  std::unique_ptr<Sockets> sockets;
};

bool send_join(int to, std::uint32_t process, const std::array<int, 2>& sockets) {
  wire::TcpJoin join{wire::TcpJoin::join, process};
  const iovec piece{&join, sizeof join};
  return send_with_descriptors(to, {&piece, 1}, sockets, 0) == sizeof join;
}

// By how many cores the agent has for connections.
class ProgramsAndTheKernel : public BesideTheKernel, public testing::WithParamInterface<std::uint32_t> {
 protected:
  void SetUp() override {
    BesideTheKernel::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    agent.emplace(GetParam());
    ASSERT_TRUE(agent->good());
  }
  // A kernel's client, on a thread of its own in the other namespace.
  template <class With>
  static std::jthread client(const With& with) {
    return std::jthread([with] {
      in_far([&] {
        const Fd fd = tcp_socket();
        const sockaddr_storage to = address_of(own);
        if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) with(fd.get());
      });
    });
  }
  std::optional<AgentProcess> agent;
};

TEST_P(ProgramsAndTheKernel, AProgramServes) {
  Program program(*agent);
  ASSERT_TRUE(program.sockets);
  const auto listener = program.listen();
  ASSERT_TRUE(listener);
  for (const std::uint64_t bytes : {1ull, 64ull, 100'000ull, 16ull << 20}) {
    Exchanged result;
    std::jthread peer = client([&](int fd) { result = exchange(fd, 77, bytes, 77); });
    const auto flow = program.patiently([&] { return program.sockets->area().accept(*listener); });
    if (flow) program.echo(*flow);
    peer.join();
    ASSERT_TRUE(flow) << flow.error().message;
    EXPECT_TRUE(result.whole);
    EXPECT_EQ(result.received, bytes);
    EXPECT_EQ(result.wrong, 0u);
  }
}

TEST_P(ProgramsAndTheKernel, AProgramConnects) {
  Program program(*agent);
  ASSERT_TRUE(program.sockets);
  Fd listening;
  in_far([&] {
    listening = tcp_socket();
    const sockaddr_storage at = address_of({kernel_server.address, kernel_server.port});
    ASSERT_EQ(::bind(listening.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    ASSERT_EQ(::listen(listening.get(), 8), 0);
  });
  Exchanged result;
  std::thread peer([&] {
    const Fd fd(::accept(listening.get(), nullptr, nullptr));
    result = exchange(fd.get(), 5, 1 << 20, 5);
  });
  const auto flow = program.sockets->area().connect(kernel_server);
  ASSERT_TRUE(flow);
  program.echo(*flow);
  peer.join();
  EXPECT_TRUE(result.whole);
  EXPECT_EQ(result.received, 1u << 20);
  EXPECT_EQ(result.wrong, 0u);
  // And without a listener.
  const auto refused = program.sockets->area().connect({kernel_server.address, 9});
  std::byte byte;
  const auto got = program.patiently([&] { return program.sockets->area().receive(*refused, {&byte, 1}); });
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Error::peer_lost);
}

// Its first events may have come before the agent knew whom to tell.
TEST_P(ProgramsAndTheKernel, AProcessIsWokenWhenTheAgentKnowsHow) {
  Program program(*agent);
  ASSERT_TRUE(program.sockets);
  const auto is_woken = [](int fd) {
    pollfd woken{fd, POLLIN, 0};
    return ::poll(&woken, 1, link::patience_ms()) == 1 && (woken.revents & POLLIN) != 0;
  };
  EXPECT_TRUE(is_woken(program.sockets->wake_fd())) << "the first, which had another socket before";
  const auto child = program.sockets->prepare_child();
  ASSERT_TRUE(child);
  EXPECT_TRUE(is_woken(child->wake.get()));
}

// It joins by other sockets, and closes those that it had with a wake in them. The agent sees all of that at once.
TEST_P(ProgramsAndTheKernel, AProcessMayLeaveAWakeUnread) {
  Program program(*agent);
  ASSERT_TRUE(program.sockets);
  pollfd woken{program.sockets->wake_fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&woken, 1, link::patience_ms()), 1);
  std::array<Fd, 4> ends;
  for (std::size_t i = 0; i < ends.size(); i += 2) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    ends[i] = Fd(pair[0]), ends[i + 1] = Fd(pair[1]);
  }
  const std::uint32_t process = program.sockets->area().process();
  ASSERT_EQ(kill(agent->pid(), SIGSTOP), 0);
  const bool said = send_join(program.sockets->wake_fd(), process, {ends[1].get(), ends[3].get()});
  program.sockets->join({process, std::move(ends[0]), std::move(ends[2])});
  ASSERT_EQ(kill(agent->pid(), SIGCONT), 0);
  ASSERT_TRUE(said);
  const auto listener = program.listen();
  EXPECT_TRUE(listener) << listener.error().message;
}

// The former connections have not ended yet, and not all cores know of their end.
TEST_P(ProgramsAndTheKernel, AProgramOpensItsConnectionsAgainOnItsChannel) {
  Program program(*agent);
  ASSERT_TRUE(program.sockets);
  std::atomic<std::size_t> ends = 0;
  std::vector<std::jthread> peers;
  for (int round = 0; round < 6; ++round) {
    const auto listener = program.listen();
    ASSERT_TRUE(listener);
    const auto flow_of = [&](const auto& with) {
      peers.push_back(client(with));
      return program.patiently([&] { return program.sockets->area().accept(*listener); });
    };
    // A peer that answers the end late, so that the flow outlives its area.
    for (int i = 0; i < 4; ++i)
      ASSERT_TRUE(flow_of([&](int fd) {
        char byte;
        ends += ::recv(fd, &byte, 1, 0) == 0;
        usleep(20'000);
      }));
    program.open();
    ASSERT_TRUE(program.sockets) << "in round " << round;
  }
  for (std::jthread& peer : peers) peer.join();
  EXPECT_EQ(ends, 24u);
  // The agent still lives, and its connections carry data.
  const auto listener = program.listen();
  ASSERT_TRUE(listener);
  Exchanged result;
  std::jthread peer = client([&](int fd) { result = exchange(fd, 77, 100'000, 77); });
  const auto flow = program.patiently([&] { return program.sockets->area().accept(*listener); });
  if (flow) program.echo(*flow);
  peer.join();
  ASSERT_TRUE(flow) << flow.error().message;
  EXPECT_TRUE(result.whole);
}

TEST_P(ProgramsAndTheKernel, AProgramThatIsKilledLeavesItsPeerNoDoubt) {
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Program program(*agent);
    const auto listener = program.listen();
    static_cast<void>(write(told[1], listener ? "y" : "n", 1));
    const auto flow = program.patiently([&] { return program.sockets->area().accept(*listener); });
    static_cast<void>(write(told[1], flow ? "y" : "n", 1));
    pause();
    _exit(0);
  }
  close(told[1]);  // a child's failure is also noticed
  char listens = 'n';
  EXPECT_EQ(read(told[0], &listens, 1), 1);
  EXPECT_EQ(listens, 'y');
  ssize_t last = -2;
  std::jthread peer = client([&](int fd) {
    char byte;
    last = ::recv(fd, &byte, 1, 0);
  });
  char accepted = 'n';
  EXPECT_EQ(read(told[0], &accepted, 1), 1);
  EXPECT_EQ(accepted, 'y');
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  peer.join();
  EXPECT_EQ(last, 0);  // all that it sent had arrived: an end, no reset
  // Its port is free again.
  Program next(*agent);
  const auto listener = next.listen();
  EXPECT_TRUE(listener);
  close(told[0]);
}

// Invalid commands, garbage in every word, unsolicited descriptors: one program's stream continues meanwhile.
TEST_P(ProgramsAndTheKernel, AHostileProgramHarmsNobodyElse) {
  Program program(*agent);
  const auto listener = program.listen();
  ASSERT_TRUE(listener);
  Exchanged result;
  constexpr std::uint64_t bytes = 64 << 20;
  std::jthread peer = client([&](int fd) { result = exchange(fd, 3, bytes, 3); });
  std::atomic<bool> over = false;
  std::size_t attacks = 0, ended = 0;
  std::thread hostile([&] {
    for (; !over || ended < 20; ++attacks) {
      Program other(*agent);
      if (!other.sockets) return;
      ended += HostileProgram(flows, attacks).attack(*other.sockets, 20'000) ? 1 : 0;
    }
  });
  const auto flow = program.patiently([&] { return program.sockets->area().accept(*listener); });
  if (flow) program.echo(*flow);
  peer.join();
  over = true;
  hostile.join();
  ASSERT_TRUE(flow) << flow.error().message;
  EXPECT_TRUE(result.whole);
  EXPECT_EQ(result.received, bytes);
  EXPECT_EQ(result.wrong, 0u);
  EXPECT_GE(ended, 20u) << "of " << attacks;
  // And its listener still has its port.
  std::jthread another = client([&](int fd) { result = exchange(fd, 4, 1000, 4); });
  if (const auto next = program.patiently([&] { return program.sockets->area().accept(*listener); }))
    program.echo(*next);
  another.join();
  EXPECT_TRUE(result.whole);
}

TEST_P(ProgramsAndTheKernel, NobodySpendsTimeWhereNothingHappens) {
  Program program(*agent);
  const auto listener = program.listen();
  ASSERT_TRUE(listener);
  std::jthread peer = client([](int fd) {
    char byte;
    static_cast<void>(::recv(fd, &byte, 1, 0));
  });
  const auto flow = program.patiently([&] { return program.sockets->area().accept(*listener); });
  ASSERT_TRUE(flow);
  const auto spent = [&] {  // by agent and program, in ticks
    std::uint64_t ticks = 0;
    for (const pid_t pid : {agent->pid(), getpid()}) {
      std::FILE* file = std::fopen(fmt::format("/proc/{}/stat", pid).c_str(), "r");
      unsigned long user = 0, system = 0;
      EXPECT_EQ(std::fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system),
                2);
      std::fclose(file);
      ticks += user + system;
    }
    return ticks;
  };
  const auto quiet = [&] { return program.sockets->wait(monotonic_ns() + second_ns).has_value(); };
  while (quiet()) {
  }
  const std::uint64_t before = spent();
  EXPECT_FALSE(quiet());
  EXPECT_LE(spent() - before, 5u) << "ticks of 10 ms in a second";
  program.sockets->area().close(*flow);
  peer.join();
}

// How often each of the agent's loops has slept, by core.
std::vector<std::uint64_t> sleeps_of(pid_t agent, std::uint32_t cores) {
  std::vector<std::uint64_t> slept(cores);
  const std::filesystem::path process = fmt::format("/proc/{}", agent);
  for (const auto& task : std::filesystem::directory_iterator(process / "task")) {
    std::string name, line;
    std::getline(std::ifstream(task.path() / "comm"), name);
    std::uint32_t core = 0;
    if (task.path().filename() != process.filename() && std::sscanf(name.c_str(), "offpath-tcp-%u", &core) != 1)
      continue;
    for (std::ifstream status(task.path() / "status"); std::getline(status, line);)
      if (unsigned long switches = 0; std::sscanf(line.c_str(), "voluntary_ctxt_switches: %lu", &switches) == 1)
        slept.at(core) = switches;
  }
  return slept;
}

TEST_P(ProgramsAndTheKernel, AWakeOfAConnectionsCoreWakesNoOther) {
  Program program(*agent);
  ASSERT_TRUE(program.sockets);
  const auto listener = program.listen();
  ASSERT_TRUE(listener);
  SocketArea& area = program.sockets->area();
  std::vector<std::jthread> peers;
  Result<SocketArea::Handle> flow = fail(Error::not_found, "none is on the last core");
  for (int i = 0; i < 32 && (!flow || area.core_of(*flow) + 1 != GetParam()); ++i) {
    peers.push_back(client([](int fd) {
      char byte;
      while (::recv(fd, &byte, 1, 0) == 1 && ::send(fd, &byte, 1, MSG_NOSIGNAL) == 1) {
      }
    }));
    if (flow) area.close(*flow);
    flow = program.patiently([&] { return area.accept(*listener); });
    ASSERT_TRUE(flow) << flow.error().message;
  }
  const std::uint32_t core = area.core_of(*flow);
  ASSERT_EQ(core + 1, GetParam());
  const int memory_fd = program.sockets->memory_fd();
  const auto bytes = static_cast<std::uint64_t>(lseek(memory_fd, 0, SEEK_END));
  const link::SegmentMemory memory = link::map_sealed(memory_fd, bytes, "the area").value();
  const SleepFlag asleep(memory.data() + wire::tcp_word::of_core(core) + wire::tcp_word::agent_asleep);
  constexpr std::uint64_t rounds = 200;
  std::vector<std::uint64_t> before;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const TimeNs deadline = link::soon();
    while (asleep.value() == 0 && monotonic_ns() < deadline) usleep(100);
    ASSERT_NE(asleep.value(), 0u) << "the core does not sleep";
    if (round == 0) before = sleeps_of(agent->pid(), GetParam());
    std::byte byte{1};
    ASSERT_TRUE(program.patiently([&] { return area.send(*flow, {&byte, 1}); }));
    ASSERT_TRUE(program.patiently([&] { return area.receive(*flow, {&byte, 1}); }));
  }
  const std::vector<std::uint64_t> after = sleeps_of(agent->pid(), GetParam());
  for (std::uint32_t each = 0; each < GetParam(); ++each) {
    if (each == core)
      EXPECT_GE(after[each] - before[each], rounds / 2);
    else
      EXPECT_LT(after[each] - before[each], rounds / 2) << "core " << each;
  }
  area.close(*flow);
}

// It expects core 0 to pass on its wakes, as an agent of that version does.
TEST_P(ProgramsAndTheKernel, AProgramOfTheVersionBeforeIsToldSo) {
  Program program(*agent);
  program.sockets.reset();
  wire::TcpOpen open{};
  open.version = wire::tcp_area_version - 1;
  std::vector<std::byte> asked;
  wire::encode(open, asked);
  const auto answer = program.end->call(wire::EntryKind::tcp_open, asked, link::soon());
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Error::version);
  for (const std::uint32_t version : {open.version, wire::tcp_area_version})
    EXPECT_NE(answer.error().message.find(std::to_string(version)), std::string::npos) << answer.error().message;
}

TEST_P(ProgramsAndTheKernel, AProgramLearnsThatItsAgentIsGone) {
  Program program(*agent);
  ASSERT_TRUE(program.sockets);
  kill(agent->pid(), SIGKILL);
  Status waited;
  while (waited) waited = program.sockets->wait(link::soon());
  EXPECT_EQ(waited.error().code, Error::peer_lost);
}

INSTANTIATE_TEST_SUITE_P(Cores, ProgramsAndTheKernel, testing::Values(1u, 2u));

}  // namespace
}  // namespace offpath::kernel_test
