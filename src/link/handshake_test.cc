#include "link/handshake.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>
#include <random>

#include "link/connected_pair.h"
#include "link/emulated.h"
#include "link/sealed_memory.h"
#include "link/test_certificate.h"

namespace offpath::link {
namespace {

using wire::ControlType;
using State = AgentHandshake::State;

TEST(Addresses, AreWhatTheySay) {
  for (const char* text : {"unix:/run/offpath/agent", "tcp:node7:7700", "tls:10.0.0.1:0", "tcp:[::1]:65535", "verbs:node7-ib:7700"}) {
    auto address = Address::parse(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(address->text(), text);
  }
  const struct {
    std::string text;
    const char* message;
  } wrong[] = {
      {"", "it must be unix:/path, tcp:HOST:PORT, tls:HOST:PORT or verbs:HOST:PORT"},
      {"/run/agent", "it must be unix:/path"},
      {"http:node:80", "it must be unix:/path"},
      {"unix:", "an absolute path"},
      {"unix:relative", "an absolute path"},
      {"unix:/" + std::string(200, 'x'), "the path has 201 bytes, a Unix socket's has at most 107"},
      {"tcp:node7", "the port is missing"},
      {"tcp::7700", "the host is missing"},
      {"tls:node:", "the port is ''"},
      {"tcp:node:77x", "the port is '77x'"},
      {"tcp:node:65536", "the port is '65536', it must be a number from 0 to 65535"},
      {"tcp:::1:7700", "in brackets"},
  };
  for (const auto& [text, message] : wrong) {
    auto address = Address::parse(text);
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().code, Error::invalid);
    EXPECT_NE(address.error().message.find(message), std::string::npos) << address.error().message;
  }
}

TEST(Connecting, SaysThatNobodyListens) {
  TestDirectory directory;
  Address address = *Address::parse("unix:" + directory.file("agent"));
  const std::string wanted = "no agent listens at " + address.text() + ": start one with `offpath agent`";
  EXPECT_EQ(connect(address, {}, soon()).error().message, wanted);
  {
    const auto listener = listen_at(address, false);
    ASSERT_TRUE(listener);
    EXPECT_EQ(listen_at(address, false).error().code, Error::exists);
  }
  EXPECT_EQ(connect(address, {}, soon()).error().message, wanted);  // the file is there, its agent is not
  EXPECT_TRUE(listen_at(address, false));                          // and gives way to the next one
}

TEST(Connecting, WaitsForTheAgentUntilTheDeadlineOnly) {
  TestAgent agent;
  auto connected = connect(agent.address, {}, monotonic_ns() + 20 * millisecond_ns);
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code, Error::timeout);
  EXPECT_NE(connected.error().message.find("did not answer in time"), std::string::npos) << connected.error().message;
}

TEST(Connecting, ToSomethingElseIsAnError) {
  TestAgent agent;
  for (const std::string_view answer : {"", "HTTP/1.1 400 Bad Request\r\n\r\n"}) {
    std::thread other([&] {
      pollfd look{agent.listener.get(), POLLIN, 0};
      ::poll(&look, 1, 10'000);
      auto accepted = accept_from(agent.listener.get());
      ASSERT_TRUE(accepted && *accepted);
      ::send(accepted->get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    });
    auto connected = connect(agent.address, {}, soon());
    other.join();
    ASSERT_FALSE(connected);
    EXPECT_EQ(connected.error().code, answer.empty() ? Error::peer_lost : Error::protocol) << connected.error().message;
    EXPECT_NE(connected.error().message.find(agent.address.text()), std::string::npos) << connected.error().message;
  }
}

TEST(Connecting, WithoutAnRdmaDeviceBothSidesSayWhatToDo) {
  Address address = *Address::parse("verbs:127.0.0.1:0");
  if (check_verbs(address)) GTEST_SKIP() << "this machine has an RDMA device";
  const auto listening = listen_at(address, false);
  ASSERT_FALSE(listening);
  EXPECT_EQ(listening.error().code, Error::unsupported);

  // An agent whose device went away after it began to listen.
  TestAgent agent{"tcp:127.0.0.1:0"};
  agent.address.kind = Address::Kind::verbs;
  TestDirectory directory;
  HostOptions options;
  options.key_file = directory.file("key");
  std::ofstream(options.key_file) << "a key for this test only, long enough";
  ASSERT_EQ(chmod(options.key_file.c_str(), 0600), 0);
  agent.policy.key = std::move(*SharedKey::load(options.key_file));
  auto [host, arrival] = agent.meet(options);
  EXPECT_EQ(arrival.link, nullptr);
  EXPECT_EQ(arrival.failure.code, Error::unsupported) << arrival.failure.message;
  ASSERT_FALSE(host);
  EXPECT_EQ(host.error().code, Error::unsupported);
  EXPECT_NE(host.error().message.find(arrival.failure.message), std::string::npos) << host.error().message;
}

TEST(Connecting, ChecksItsOptions) {
  TestAgent agent;
  EXPECT_EQ(connect(agent.address, {.name = std::string(256, 'n')}, soon()).error().code, Error::invalid);
  EXPECT_EQ(connect(agent.address, {.layout = {.request_slots = 100}}, soon()).error().code, Error::invalid);
  const auto network = connect(*Address::parse("tcp:127.0.0.1:1"), {}, soon());
  EXPECT_NE(network.error().message.find("key file"), std::string::npos) << network.error().message;
}

TEST(Staging, HasItsReason) {
  TestAgent agent;
  const auto reason = [](const auto& met) {
    EXPECT_TRUE(met.first && met.second.link);
    EXPECT_TRUE((*met.first)->traits().staged);
    EXPECT_FALSE((*met.first)->traits().one_sided);
    EXPECT_TRUE(met.second.link->traits().staged);
    const std::byte here{};
    EXPECT_EQ((*met.first)->announce_range(1, 1, &here, 1).error().code, Error::unsupported);
    EXPECT_EQ(met.second.link->attach_range(1, 1, 4096, 1, 0).error().code, Error::unsupported);
    return (*met.first)->traits().reason;
  };
  EXPECT_EQ(reason(agent.meet({.force_staging = true})), "the program asked for staging");
  agent.policy.force_staging = true;
  EXPECT_EQ(reason(agent.meet()), "the agent is configured for staging");
}

// ---- a client that says what the test wants it to say

class RawClient {
 public:
  explicit RawClient(TestAgent& agent) : agent_(agent) {
    auto dialled = dial(agent.address, soon());
    OFP_ASSERT(dialled);
    const auto kind = agent.address.kind == Address::Kind::unix_socket ? ControlSocket::Kind::unix_socket : ControlSocket::Kind::network;
    socket = ControlSocket(std::move(*dialled), kind);
  }
  void say(const wire::Hello& hello, int descriptor) {
    std::vector<std::byte> payload;
    wire::encode(hello, payload);
    ASSERT_TRUE(socket.send(ControlType::hello, payload, descriptor));
  }
  // What the agent's side comes to, and that the client was told the same.
  Failure refused() {
    const auto arrival = agent_.serve();
    EXPECT_FALSE(arrival.link);
    auto frame = await_frame(socket, soon());
    EXPECT_TRUE(frame) << frame.error().message;
    if (frame) {
      EXPECT_EQ(frame->type, ControlType::refusal);
      auto refusal = wire::decode_refusal(frame->payload);
      EXPECT_TRUE(refusal);
      EXPECT_EQ(refusal->message, arrival.failure.message);
      EXPECT_EQ(refusal->code, arrival.failure.code);
    }
    EXPECT_EQ(await_frame(socket, soon()).error().code, Error::peer_lost);
    return arrival.failure;
  }

  ControlSocket socket;

 private:
  TestAgent& agent_;
};

wire::Hello good_hello() {
  wire::Hello hello;
  hello.name = "raw";
  return hello;
}

Fd memory_with(int seals, std::uint64_t length, unsigned flags = 0) {
  Fd memory(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  if (!memory || ftruncate(memory.get(), static_cast<off_t>(length)) != 0 || fcntl(memory.get(), F_ADD_SEALS, seals) != 0) return Fd();
  return memory;
}

TEST(BadMemory, IsRefusedBeforeItIsMapped) {
  TestAgent agent;
  const std::uint64_t total = wire::ChannelLayout{}.total_bytes();
  constexpr int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const struct {
    Fd memory;
    const char* message;
  } cases[] = {
      {memory_with(0, total), "the memfd has the seals none, needed are SHRINK, GROW, SEAL"},
      {memory_with(F_SEAL_GROW | F_SEAL_SEAL, total), "the memfd has the seals GROW, SEAL"},
      {memory_with(F_SEAL_SHRINK | F_SEAL_SEAL, total), "the memfd has the seals SHRINK, SEAL"},
      {memory_with(F_SEAL_SHRINK | F_SEAL_GROW, total), "the memfd has the seals SHRINK, GROW, needed"},
      {memory_with(all | F_SEAL_WRITE, total), "so the agent could not write to it"},
      {memory_with(all | F_SEAL_FUTURE_WRITE, total), "so the agent could not write to it"},
      {memory_with(all, total - 4096), "the memfd has"},
      {memory_with(all, total + 1), "the memfd has"},
      {memory_with(all, 0), "the memfd has 0 bytes"},
      {Fd(::open("/dev/zero", O_RDWR | O_CLOEXEC)), "memfd"},
      {Fd(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)), "memfd"},
      {Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), "not an ordinary memfd"},
  };
  for (const auto& [memory, message] : cases) {
    ASSERT_TRUE(memory) << message;
    RawClient client(agent);
    client.say(good_hello(), memory.get());
    const Failure failure = client.refused();
    EXPECT_NE(failure.message.find(message), std::string::npos) << failure.message;
  }
  // Huge pages: a hole in them raises SIGBUS where none is left. (Made only where the machine has any.)
  if (const Fd huge = memory_with(all, 2 << 20, MFD_HUGETLB)) {
    RawClient client(agent);
    client.say(good_hello(), huge.get());
    EXPECT_NE(client.refused().message.find("not an ordinary memfd"), std::string::npos);
  }
}

TEST(BadHello, IsRefusedWithBothValues) {
  TestAgent agent;
  const auto memory = allocate_sealed(wire::ChannelLayout{}.total_bytes());
  ASSERT_TRUE(memory);
  {
    RawClient client(agent);
    wire::Hello hello = good_hello();
    hello.version = 9;
    client.say(hello, memory->fd());
    const Failure failure = client.refused();
    EXPECT_EQ(failure.code, Error::version);
    const std::string both = fmt::format("protocol version 9, the agent version {}", wire::protocol_version);
    EXPECT_NE(failure.message.find(both), std::string::npos) << failure.message;
  }
  {
    RawClient client(agent);
    wire::Hello hello = good_hello();
    hello.layout.streams_max = 1 << 30;
    client.say(hello, memory->fd());
    EXPECT_NE(client.refused().message.find("streams_max is 1073741824; it must be from 1 to 65536"), std::string::npos);
  }
  {
    RawClient client(agent);
    ASSERT_TRUE(client.socket.send(ControlType::hello, bytes_of("GET / HTTP/1.1\r\n"), memory->fd()));
    EXPECT_EQ(client.refused().message, "hello: this is not an Offpath program");
  }
  {
    RawClient client(agent);
    std::vector<std::byte> payload;
    wire::encode(good_hello(), payload);
    payload.push_back(std::byte{});
    ASSERT_TRUE(client.socket.send(ControlType::hello, payload, memory->fd()));
    EXPECT_EQ(client.refused().code, Error::protocol);
  }
  {
    RawClient client(agent);
    ASSERT_TRUE(client.socket.send_wake());
    EXPECT_EQ(client.refused().message, "wake: a frame that has no place before hello");
  }
  {
    RawClient client(agent);
    std::vector<std::byte> payload;
    wire::encode(good_hello(), payload);
    ASSERT_TRUE(client.socket.send(ControlType::hello, payload));
    EXPECT_EQ(client.refused().message, "hello: came with 0 descriptors, expected are 1");
  }
}

TEST(SlowClient, IsGivenUpAtTheDeadline) {
  TestAgent agent;
  RawClient client(agent);
  pollfd look{agent.listener.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&look, 1, 10'000), 1);
  auto accepted = accept_from(agent.listener.get());
  ASSERT_TRUE(accepted && *accepted);
  AgentHandshake handshake(std::move(*accepted), agent.address.kind, agent.policy, 1000);
  EXPECT_EQ(handshake.deadline(), 1000 + handshake_wait_ns);
  EXPECT_EQ(handshake.advance(1001), State::pending);
  EXPECT_EQ(handshake.advance(handshake.deadline() - 1), State::pending);
  EXPECT_EQ(handshake.advance(handshake.deadline()), State::failed);
  EXPECT_EQ(handshake.failure().code, Error::timeout);
  auto frame = await_frame(client.socket, soon());
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->type, ControlType::refusal);
}

TEST(TheOwner, MayRefuse) {
  TestAgent agent;
  std::thread serving([&] {
    pollfd look{agent.listener.get(), POLLIN, 0};
    ::poll(&look, 1, 10'000);
    auto accepted = accept_from(agent.listener.get());
    AgentHandshake handshake(std::move(*accepted), agent.address.kind, agent.policy, monotonic_ns());
    while (handshake.advance(monotonic_ns()) == State::pending) {
      look = {handshake.fd(), POLLIN, 0};
      ::poll(&look, 1, 100);
    }
    ASSERT_EQ(handshake.state(), State::ready);
    handshake.refuse(Error::too_large, "1024 programs are connected, more are not allowed");
    EXPECT_EQ(handshake.state(), State::failed);
  });
  const auto connected = connect(agent.address, {}, soon());
  serving.join();
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code, Error::too_large);
  EXPECT_EQ(connected.error().message,
            "the agent at " + agent.address.text() + " refuses: 1024 programs are connected, more are not allowed");
}

TEST(Garbage, EndsInRefusalOrWaits) {
  TestAgent agent;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    auto dialled = dial(agent.address, soon());
    ASSERT_TRUE(dialled);
    std::vector<std::byte> bytes;
    wire::encode(good_hello(), bytes);
    std::vector<std::byte> frame(sizeof(wire::ControlHeader));
    store(frame.data(), wire::ControlHeader{static_cast<std::uint32_t>(bytes.size()), ControlType::hello, 0});
    frame.insert(frame.end(), bytes.begin(), bytes.end());
    for (unsigned flips = 1 + random() % 8; flips > 0; --flips) frame[random() % frame.size()] = static_cast<std::byte>(random());
    frame.resize(1 + random() % frame.size());
    ASSERT_EQ(::send(dialled->get(), frame.data(), frame.size(), MSG_NOSIGNAL), static_cast<ssize_t>(frame.size()));
    auto accepted = accept_from(agent.listener.get());
    ASSERT_TRUE(accepted && *accepted);
    AgentHandshake handshake(std::move(*accepted), agent.address.kind, agent.policy, 0);
    handshake.advance(1);
    EXPECT_NE(handshake.state(), State::ready) << seed;
    EXPECT_EQ(handshake.advance(handshake.deadline()), State::failed) << seed;
  }
}

// ---- who is at the other end

TEST(Strangers, ProcessThatSpeaksForAnotherIsNotReadDirectly) {
  OFP_NEEDS_KERNEL("process_vm_readv");
  TestAgent agent;
  RawClient client(agent);  // this process connects
  volatile std::uint64_t probe = 1;
  const pid_t child = fork();  // another one speaks
  if (child == 0) {
    probe = random_number();
    const auto memory = allocate_sealed(wire::ChannelLayout{}.total_bytes());
    wire::Hello hello = good_hello();
    hello.pid = getpid();
    hello.probe_address = reinterpret_cast<std::uint64_t>(&probe);
    hello.probe_value = probe;
    client.say(hello, memory->fd());
    (void)await_frame(client.socket, soon());
    _exit(0);
  }
  const auto arrival = agent.serve();
  ASSERT_TRUE(arrival.link) << arrival.failure.message;
  EXPECT_EQ(arrival.pid, getpid());
  EXPECT_TRUE(arrival.link->traits().staged);
  EXPECT_EQ(arrival.link->traits().reason,
            fmt::format("process {} opened the connection, but another one speaks on it: connect after the fork", getpid()));
  waitpid(child, nullptr, 0);
}

// Runs an agent and a host as two users; the host's child ends with 0 if `check` says so.
class Users : public testing::Test {
 protected:
  static constexpr uid_t agent_uid = 64'001, host_uid = 64'002;

  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can start processes of two other users";
    ASSERT_EQ(chmod(agent.address.path.substr(0, agent.address.path.rfind('/')).c_str(), 0755), 0);
  }
  static void become(uid_t uid, bool readable = true) {
    OFP_ASSERT(setresgid(uid, uid, uid) == 0 && setresuid(uid, uid, uid) == 0);
    prctl(PR_SET_DUMPABLE, readable ? 1 : 0, 0, 0, 0);
  }
  // Returns what the host's end came to: its reason, or the failure's message.
  std::string meet(uid_t host, bool host_readable = true) {
    int pipe_ends[2];
    OFP_ASSERT(pipe(pipe_ends) == 0);
    const pid_t program = fork();
    if (program == 0) {
      become(host, host_readable);
      auto connected = connect(agent.address, {}, soon());
      const std::string text = !connected ? connected.error().message
                                          : ((*connected)->traits().staged ? "staged: " : "direct: ") + (*connected)->traits().reason;
      (void)!::write(pipe_ends[1], text.data(), text.size());
      _exit(0);
    }
    const pid_t serving = fork();
    if (serving == 0) {
      become(agent_uid);
      const auto arrival = agent.serve();
      _exit(arrival.uid == host || !arrival.link ? 0 : 1);
    }
    int status = 1;
    waitpid(program, nullptr, 0);
    waitpid(serving, &status, 0);
    EXPECT_EQ(status, 0);
    char text[1024];
    const ssize_t got = ::read(pipe_ends[0], text, sizeof text);
    ::close(pipe_ends[0]);
    ::close(pipe_ends[1]);
    return {text, got > 0 ? static_cast<std::size_t>(got) : 0};
  }
  TestAgent agent;
};

TEST_F(Users, TheSameUserIsReadDirectly) {
  OFP_NEEDS_KERNEL("process_vm_readv");
  if (yama_scope() > 1) GTEST_SKIP() << "kernel.yama.ptrace_scope is " << yama_scope();
  EXPECT_EQ(meet(agent_uid), "direct: one machine: the agent reads the program's memory where it lies");
}

TEST_F(Users, AnotherUserHasToBeOnTheList) {
  OFP_NEEDS_KERNEL("process_vm_readv");
  const std::string refused = meet(host_uid);
  EXPECT_NE(refused.find(fmt::format("refuses: uid {} may not use this agent; allowed are 0, {}", host_uid, agent_uid)), std::string::npos)
      << refused;
  agent.policy.uids = {host_uid};
  EXPECT_EQ(meet(host_uid), fmt::format("staged: direct reads are not permitted: the program runs as uid {}, the agent as uid {}: run "
                                        "both as the same user, or give the agent CAP_SYS_PTRACE",
                                        host_uid, agent_uid));
}

TEST_F(Users, RootIsServedButNotReadByOthers) {
  OFP_NEEDS_KERNEL("process_vm_readv");
  EXPECT_EQ(meet(0), fmt::format("staged: direct reads are not permitted: the program runs as uid 0, the agent as uid {}: run both as "
                                 "the same user, or give the agent CAP_SYS_PTRACE",
                                 agent_uid));
}

TEST_F(Users, AProgramThatMadeItselfUnreadableIsStaged) {
  OFP_NEEDS_KERNEL("process_vm_readv");
  const std::string text = meet(agent_uid, false);
  EXPECT_NE(text.find("staged: direct reads are not permitted: the program made itself unreadable"), std::string::npos) << text;
}

// ---- the network

class Network : public testing::Test {
 protected:
  std::string key(const std::string& name, std::string_view content) { return directory.write(name, content); }
  TestDirectory directory;
  TestAgent agent{"tcp:127.0.0.1:0"};
};

TEST_F(Network, NeedsTheKeyAtBothEnds) {
  const std::string right = key("right", "the right key of both"), wrong = key("wrong", "the wrong key of one");
  auto met = agent.meet({.key_file = right});
  ASSERT_FALSE(met.first);
  EXPECT_EQ(met.first.error().code, Error::denied);
  EXPECT_NE(met.first.error().message.find("was started without a key file"), std::string::npos) << met.first.error().message;

  agent.policy.key = std::move(*SharedKey::load(right));
  met = agent.meet({.key_file = wrong});
  ASSERT_FALSE(met.first);
  EXPECT_EQ(met.first.error().code, Error::denied);
  EXPECT_NE(met.first.error().message.find("does not know the agent's key"), std::string::npos) << met.first.error().message;
  EXPECT_FALSE(met.second.link);

  met = agent.meet({.name = "simulation", .key_file = right});
  ASSERT_TRUE(met.first) << met.first.error().message;
  EXPECT_EQ(met.second.hello.name, "simulation");
}

// What the kernel was told: how long what was sent may stay unacknowledged, and when it asks an idle connection's other end.
struct Silence {
  explicit Silence(int socket) {
    const auto option = [socket](int name) {
      int value = -1;
      socklen_t length = sizeof value;
      EXPECT_EQ(::getsockopt(socket, IPPROTO_TCP, name, &value, &length), 0);
      return value;
    };
    unacknowledged_ms = option(TCP_USER_TIMEOUT);
    idle_s = option(TCP_KEEPIDLE);
    interval_s = option(TCP_KEEPINTVL);
  }
  int unacknowledged_ms, idle_s, interval_s;
};

TEST(EndWhenSilent, IsOverInTimeWhateverTheTime) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  for (const int silence_s : {2, 3, 4, 5, 7, 60, 3600}) {
    end_when_silent(socket.get(), silence_s * second_ns);
    const Silence told(socket.get());
    // An idle connection ends when it is asked for the first time after the user timeout.
    EXPECT_LE(told.unacknowledged_ms + told.interval_s * 1000, silence_s * 1000) << silence_s;
    EXPECT_GT(told.unacknowledged_ms, 0) << silence_s;
    EXPECT_GE(told.unacknowledged_ms, silence_s * 500) << silence_s;
    EXPECT_LE(told.idle_s * 1000, told.unacknowledged_ms) << silence_s << ": nobody asks before it is over";
  }
}

TEST_F(Network, TheAgentsSilenceIsTheProgramsToo) {
  const std::string right = key("right", "the right key of both");
  agent.policy.key = std::move(*SharedKey::load(right));
  agent.policy.silence_ns = 17 * second_ns;
  auto met = agent.meet({.name = "simulation", .key_file = right});
  ASSERT_TRUE(met.first) << met.first.error().message;
  EXPECT_EQ((*met.first)->welcome().silence_ms, 17'000u);
  int sockets = 0;  // of this process, which holds both ends
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_storage other{};
    socklen_t length = sizeof other;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&other), &length) != 0 || other.ss_family != AF_INET) continue;
    EXPECT_LE(Silence(fd).unacknowledged_ms, 17'000);
    EXPECT_GT(Silence(fd).unacknowledged_ms, 8'000);
    ++sockets;
  }
  EXPECT_EQ(sockets, 2);
}

TEST_F(Network, OldKeysAreGoodEnoughWhileTheyAreListed) {
  const std::string fresh = key("fresh", "the key from today on"), old = key("old", "the key until yesterday");
  agent.policy.key = std::move(*SharedKey::load(fresh));
  EXPECT_EQ(agent.meet({.key_file = old}).first.error().code, Error::denied);

  agent.policy.old_keys.push_back(std::move(*SharedKey::load(old)));
  auto met = agent.meet({.key_file = old});
  ASSERT_TRUE(met.first) << met.first.error().message;  // it knows the agent by the key it has itself
  EXPECT_TRUE(met.second.by_old_key);
  met = agent.meet({.key_file = fresh});
  ASSERT_TRUE(met.first) << met.first.error().message;
  EXPECT_FALSE(met.second.by_old_key);

  agent.policy.old_keys.clear();
  EXPECT_EQ(agent.meet({.key_file = old}).first.error().code, Error::denied);
}

TEST_F(Network, AnAgentWithoutTheKeyIsNotTrusted) {
  const std::string right = key("right", "the right key of both");
  std::thread impostor([&] {
    pollfd look{agent.listener.get(), POLLIN, 0};
    ::poll(&look, 1, 10'000);
    auto accepted = accept_from(agent.listener.get());
    ControlSocket socket(std::move(*accepted), ControlSocket::Kind::network);
    ASSERT_TRUE(await_frame(socket, soon()));
    ASSERT_TRUE(socket.send(ControlType::challenge, random_nonce()));
    auto proof = await_frame(socket, soon());
    ASSERT_TRUE(proof);
    wire::Welcome welcome;  // sends the host's own proof back
    std::ranges::copy(proof->payload, welcome.proof.begin());
    std::vector<std::byte> payload;
    wire::encode(welcome, payload);
    ASSERT_TRUE(socket.send(ControlType::welcome, payload));
    (void)await_frame(socket, soon());
  });
  const auto connected = connect(agent.address, {.key_file = right}, soon());
  impostor.join();
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code, Error::denied);
  EXPECT_NE(connected.error().message.find("does not know the key"), std::string::npos) << connected.error().message;
}

TEST_F(Network, AProofOfAnotherConnectionIsRefused) {
  const std::string right = key("right", "the right key of both");
  agent.policy.key = std::move(*SharedKey::load(right));
  RawClient client(agent);
  wire::Hello hello = good_hello();
  hello.nonce = random_nonce();
  std::vector<std::byte> said;
  wire::encode(hello, said);
  ASSERT_TRUE(client.socket.send(ControlType::hello, said));
  // Correct, but for a challenge of before.
  const auto proof = agent.policy.key->prove(SharedKey::Side::host, hello.nonce, random_nonce(), {}, said);
  ASSERT_TRUE(client.socket.send(ControlType::proof, proof));
  const auto arrival = agent.serve();
  EXPECT_FALSE(arrival.link);
  EXPECT_EQ(arrival.failure.code, Error::denied);
}

// ---- TLS

class Tls : public Network {
 protected:
  void serve_with(const std::string& names, long from_s = -3600, long until_s = 3600) {
    const std::string private_key = directory.file("private_key");
    write_test_certificate(certificate, private_key, names, from_s, until_s);
    agent.address.kind = Address::Kind::tls;
    agent.policy.key = std::move(*SharedKey::load(shared_key));
    agent.policy.tls = std::move(*TlsContext::for_agent(certificate, private_key));
  }
  const std::string shared_key = key("shared", "the right key of both");
  const std::string certificate = directory.file("certificate");
};

// What a clock that is wrong on either side looks like.
TEST_F(Tls, ACertificateOfAnotherTimeIsRefusedWithThisMachinesDate) {
  const auto refused = [&](long from_s, long until_s, const std::string& why) {
    serve_with("IP:127.0.0.1", from_s, until_s);
    const auto met = agent.meet({.key_file = shared_key, .tls_ca_file = certificate});
    ASSERT_FALSE(met.first);
    EXPECT_EQ(met.first.error().code, Error::denied);
    EXPECT_NE(met.first.error().message.find(why + "; this machine's clock says 20"), std::string::npos) << met.first.error().message;
    EXPECT_NE(met.first.error().message.find("renew the agent's certificate"), std::string::npos) << met.first.error().message;
  };
  refused(3600, 7200, "not yet valid");
  refused(-7200, -3600, "has expired");
}

TEST_F(Tls, ChecksAuthorityAndAddress) {
  serve_with("IP:127.0.0.1");
  auto met = agent.meet({.key_file = shared_key, .tls_ca_file = certificate});
  ASSERT_TRUE(met.first) << met.first.error().message;
  EXPECT_NE((*met.first)->traits().reason.find("over TLS"), std::string::npos);

  serve_with("IP:127.0.0.2,DNS:node7");
  met = agent.meet({.key_file = shared_key, .tls_ca_file = certificate});
  ASSERT_FALSE(met.first);
  EXPECT_EQ(met.first.error().code, Error::denied);
  EXPECT_NE(met.first.error().message.find("certificate is refused: IP address mismatch"), std::string::npos) << met.first.error().message;

  serve_with("IP:127.0.0.1");
  const std::string other = directory.file("other");
  write_test_certificate(other, directory.file("other_key"), "IP:127.0.0.1");
  met = agent.meet({.key_file = shared_key, .tls_ca_file = other});
  ASSERT_FALSE(met.first);
  EXPECT_EQ(met.first.error().code, Error::denied);
  EXPECT_FALSE(met.second.link);

  const auto without = connect(agent.address, {.key_file = shared_key}, soon());
  ASSERT_FALSE(without);
  EXPECT_NE(without.error().message.find("tls_ca_file"), std::string::npos) << without.error().message;
}

TEST_F(Tls, StillNeedsTheKey) {
  serve_with("IP:127.0.0.1");
  const auto met = agent.meet({.key_file = key("wrong", "the wrong key of one"), .tls_ca_file = certificate});
  ASSERT_FALSE(met.first);
  EXPECT_NE(met.first.error().message.find("does not know the agent's key"), std::string::npos) << met.first.error().message;
}

TEST_F(Tls, ACertificateAndAKeyThatDoNotBelongTogether) {
  serve_with("IP:127.0.0.1");
  const std::string other = directory.file("other_key");
  write_test_certificate(directory.file("other"), other, "IP:127.0.0.1");
  EXPECT_EQ(TlsContext::for_agent(certificate, other).error().code, Error::invalid);
  EXPECT_EQ(TlsContext::for_agent(shared_key, other).error().code, Error::invalid);
  EXPECT_EQ(TlsContext::for_host(shared_key).error().code, Error::invalid);
}

TEST_F(Tls, PlainAndEncryptedDoNotMeet) {
  serve_with("IP:127.0.0.1");
  const Address encrypted = agent.address;
  Address plain = encrypted;
  plain.kind = Address::Kind::tcp;
  for (const bool agent_encrypts : {true, false}) {
    agent.address = agent_encrypts ? encrypted : plain;
    TestAgent::Arrival arrival;
    std::thread serving([&] { arrival = agent.serve(); });
    const auto connected =
        connect(agent_encrypts ? plain : encrypted, {.key_file = shared_key, .tls_ca_file = certificate}, monotonic_ns() + second_ns);
    serving.join();
    EXPECT_FALSE(connected);
    EXPECT_FALSE(arrival.link);
    EXPECT_EQ(arrival.failure.code, Error::protocol) << arrival.failure.message;
  }
}

}  // namespace
}  // namespace offpath::link
