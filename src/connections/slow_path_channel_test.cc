#include "connections/slow_path_channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "channel/agent_end.h"
#include "testing/link/connected_pair.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"
#include "wire/messages/tcp_messages.h"

namespace offpath::channel {
namespace {

// An agent that takes one process for its slow path, or refuses it.
class SlowPathAgent : public AgentEvents {
 public:
  explicit SlowPathAgent(bool takes) : takes_(takes), serving_([this] { serve(); }) {}
  ~SlowPathAgent() override {
    stopped_ = true;
    serving_.join();
  }

  [[nodiscard]] std::string address() const { return agent_.address.text(); }
  // Once the process is connected: its request, and the agent's end of the pair.
  [[nodiscard]] const wire::TcpSlowPathOpen& asked() const noexcept {
    OFP_ASSERT(taken_);
    return asked_;
  }
  [[nodiscard]] Fd& wakes() noexcept {
    OFP_ASSERT(taken_);
    return ours_;
  }

 private:
  void serve() {
    auto arrival = agent_.serve();
    ASSERT_TRUE(arrival.link) << arrival.failure.message;
    AgentEnd end(1, "slow-path", std::move(arrival.link), arrival.hello.layout, *this);
    while (!stopped_) {
      if (!end.poll(monotonic_ns())) std::this_thread::yield();
      if (handing_over_ == 0) continue;
      EXPECT_TRUE(end.hand_over(std::exchange(handing_over_, 0), theirs_.get()));
    }
  }
  void on_request(AgentEnd& channel, const Entry& request, TimeNs) override {
    ASSERT_EQ(static_cast<wire::EntryKind>(request.kind), wire::EntryKind::tcp_slow_path);
    ASSERT_TRUE(wire::decode(request.payload, asked_));
    if (!takes_)
      return channel.reply_failure(request.ticket, wire::any_reply, {Error::exists, "there is a slow path already"});
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    ours_ = Fd(ends[0]);
    theirs_ = Fd(ends[1]);
    handing_over_ = request.ticket;
    taken_ = true;
    channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{});
  }
  void on_transfer(AgentEnd&, std::uint64_t, Status, TimeNs) override {}
  void on_offer(AgentEnd&, std::uint64_t, Result<Fd>, TimeNs) override {}
  void on_closed(AgentEnd&, const Failure&, TimeNs) override {}

  const bool takes_;
  link::TestAgent agent_;
  wire::TcpSlowPathOpen asked_{};
  Fd ours_, theirs_;
  std::uint64_t handing_over_ = 0;
  std::atomic<bool> taken_ = false, stopped_ = false;
  std::thread serving_;
};

using link::soon;

TEST(SlowPathChannel, SharesItsMemoryAndWakesBothWays) {
  SlowPathAgent agent(true);
  const wire::TcpSlowLayout layout;
  auto channel = SlowPathChannel::connect(agent.address(), layout, soon());
  ASSERT_TRUE(channel) << channel.error().message;
  EXPECT_EQ(agent.asked().ring_bytes, layout.ring_bytes);
  EXPECT_GE((*channel)->memory().size(), layout.bytes());

  (*channel)->wake();
  char bytes[16];
  EXPECT_EQ(recv(agent.wakes().get(), bytes, sizeof bytes, 0), 1);

  EXPECT_TRUE((*channel)->sleep(0, 0)) << "it only looks, and there is nothing";
  ASSERT_EQ(send(agent.wakes().get(), "", 1, 0), 1);
  ASSERT_EQ(send(agent.wakes().get(), "", 1, 0), 1);
  EXPECT_TRUE((*channel)->sleep(never, 0)) << "a wake that came before the sleep ends it";
  EXPECT_EQ(recv(agent.wakes().get(), bytes, sizeof bytes, 0), -1);
  EXPECT_TRUE((*channel)->sleep(0, 0)) << "one sleep takes all wakes";
}

TEST(SlowPathChannel, AnAgentThatIsGoneEndsTheSleep) {
  SlowPathAgent agent(true);
  auto channel = SlowPathChannel::connect(agent.address(), {}, soon());
  ASSERT_TRUE(channel) << channel.error().message;
  agent.wakes().reset();
  const Status slept = (*channel)->sleep(never, 0);
  ASSERT_FALSE(slept);
  EXPECT_EQ(slept.error().code, Error::peer_lost);
  (*channel)->wake();  // raises no SIGPIPE
}

TEST(SlowPathChannel, TheAgentsRefusalIsPassedOn) {
  SlowPathAgent agent(false);
  const auto channel = SlowPathChannel::connect(agent.address(), {}, soon());
  ASSERT_FALSE(channel);
  EXPECT_EQ(channel.error().code, Error::exists);
}

TEST(SlowPathChannel, AnAgentOnAnotherMachineIsUnsupported) {
  const auto channel = SlowPathChannel::connect("tcp:127.0.0.1:1", {}, soon());
  ASSERT_FALSE(channel);
  EXPECT_EQ(channel.error().code, Error::unsupported);
  EXPECT_NE(channel.error().message.find("unix:/path"), std::string::npos) << channel.error().message;
}

}  // namespace
}  // namespace offpath::channel
