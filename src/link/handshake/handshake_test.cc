// How an agent handles a program that says something unexpected, or nothing.
#include "link/handshake/handshake.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <random>

#include "link/local/sealed_memory.h"
#include "testing/link/raw_client.h"

namespace offpath::link {
namespace {

using wire::ControlType;
using State = AgentHandshake::State;

Fd memory_with(int seals, std::uint64_t length, unsigned flags = 0) {
  Fd memory(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  if (!memory || ftruncate(memory.get(), static_cast<off_t>(length)) != 0 ||
      fcntl(memory.get(), F_ADD_SEALS, seals) != 0)
    return Fd();
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
      {memory_with(0, total), "the memfd has the seals none, it needs SHRINK, GROW, SEAL"},
      {memory_with(F_SEAL_GROW | F_SEAL_SEAL, total), "the memfd has the seals GROW, SEAL"},
      {memory_with(F_SEAL_SHRINK | F_SEAL_SEAL, total), "the memfd has the seals SHRINK, SEAL"},
      {memory_with(F_SEAL_SHRINK | F_SEAL_GROW, total), "the memfd has the seals SHRINK, GROW, it needs"},
      {memory_with(all | F_SEAL_WRITE, total), "so the agent could not write to it"},
      {memory_with(all | F_SEAL_FUTURE_WRITE, total), "so the agent could not write to it"},
      {memory_with(all, total - 4096), "the memfd has"},
      {memory_with(all, total + 1), "the memfd has"},
      {memory_with(all, 0), "the memfd has 0 bytes"},
      {Fd(::open("/dev/zero", O_RDWR | O_CLOEXEC)), "memfd"},
      {Fd(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)), "memfd"},
      {Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), "cannot be sealed"},
  };
  for (const auto& [memory, message] : cases) {
    ASSERT_TRUE(memory) << message;
    RawClient client(agent);
    client.say(good_hello(), memory.get());
    const Failure failure = client.refused();
    EXPECT_NE(failure.message.find(message), std::string::npos) << failure.message;
  }
  // Huge pages: a hole in them raises SIGBUS if no huge page is free. (Made only if the machine has any.)
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
    hello.version = wire::protocol_version + 1;
    client.say(hello, memory->fd());
    const Failure failure = client.refused();
    EXPECT_EQ(failure.code, Error::version);
    const std::string both =
        fmt::format("protocol version {}, the agent version {}", hello.version, wire::protocol_version);
    EXPECT_NE(failure.message.find(both), std::string::npos) << failure.message;
  }
  {
    RawClient client(agent);
    wire::Hello hello = good_hello();
    hello.layout.streams_max = 1 << 30;
    client.say(hello, memory->fd());
    EXPECT_NE(client.refused().message.find("streams_max is 1073741824; it must be from 1 to 65536"),
              std::string::npos);
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
    EXPECT_EQ(client.refused().message, "wake: unexpected frame before hello");
  }
  {
    RawClient client(agent);
    std::vector<std::byte> payload;
    wire::encode(good_hello(), payload);
    ASSERT_TRUE(client.socket.send(ControlType::hello, payload));
    EXPECT_EQ(client.refused().message, "hello: came with 0 descriptors, expected 1");
  }
}

TEST(SlowClient, IsGivenUpAtTheDeadline) {
  TestAgent agent;
  RawClient client(agent);
  pollfd look{agent.listener.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&look, 1, patience_ms()), 1);
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
    ::poll(&look, 1, patience_ms());
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
    for (unsigned flips = 1 + random() % 8; flips > 0; --flips)
      frame[random() % frame.size()] = static_cast<std::byte>(random());
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

}  // namespace
}  // namespace offpath::link
