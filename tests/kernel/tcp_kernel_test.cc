// The stack against Linux's own TCP, over veth and TAP, good networks and bad ones, as server and as client. Skipped, with the
// reason, where no network namespaces can be made.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <list>

#include "kernel_peer.h"
#include "namespace_pair.h"
#include "tcp/packet_port.h"

namespace offpath::kernel_test {
namespace {

using namespace tcp;

constexpr Ipv4Address self{0x0a090002}, kernel{0x0a090001};  // 10.9.0.2, 10.9.0.1
constexpr std::uint16_t port = 7000;

// Sends back what it receives, out of the very buffer it came into.
class EchoOwner final : public Owner {
 public:
  std::optional<std::uint64_t> accept(std::uint64_t, FlowId flow, const FlowKey&) override {
    flows_.push_back({flow, std::vector<std::byte>(buffer_bytes)});
    return flows_.size() - 1;
  }
  Payload payload(FlowId, std::uint64_t tag, std::uint64_t position, std::uint32_t bytes) override {
    const Bytes ring(flows_[tag].ring);
    const std::size_t at = position % ring.size(), first = std::min<std::size_t>(bytes, ring.size() - at);
    return {ring.subspan(at, first), ring.first(bytes - first)};
  }
  void store(FlowId, std::uint64_t tag, std::uint64_t position, Bytes bytes) override {
    auto& ring = flows_[tag].ring;
    for (std::size_t i = 0; i < bytes.size(); ++i) ring[(position + i) % ring.size()] = bytes[i];
  }
  void act(Stack& stack, TimeNs now) {
    while (const auto what = stack.next_change()) {
      stack.offer(what->flow, what->received, now);
      stack.allow(what->flow, what->acknowledged + buffer_bytes, now);
      if (what->what & (change::finished | change::closed)) stack.finish(what->flow, now);
      if (what->what & change::closed) stack.release(what->flow, now);
      gone += (what->what & change::gone) != 0;
    }
  }
  static constexpr std::size_t buffer_bytes = 256 << 10;
  std::size_t gone = 0;

 private:
  struct Echo {
    FlowId id;
    std::vector<std::byte> ring;
  };
  std::vector<Echo> flows_;
};

template <class AnyOwner>
struct Machine {
  std::unique_ptr<PacketPort> device;
  std::unique_ptr<ImpairedPort> impaired;
  std::unique_ptr<const CongestionControl> congestion = congestion_control("cubic").value();
  AnyOwner owner;
  std::unique_ptr<Stack> stack;
  std::unique_ptr<Station> station;

  Machine(std::unique_ptr<PacketPort> opened, const Impairments& bad, std::uint64_t seed) : device(std::move(opened)) {
    impaired = std::make_unique<ImpairedPort>(*device, bad, bad, seed);
    const bool good = bad.loss == 0 && bad.bytes_per_second == 0;
    Port& used = good ? static_cast<Port&>(*device) : *impaired;
    StackOptions options;
    options.address = self;
    options.secret = {seed, 99};
    options.time_wait_ns = second_ns;
    stack = std::make_unique<Stack>(options, used.capabilities(), *congestion, owner, monotonic_ns());
    station = std::make_unique<Station>(used, *stack, [this](TimeNs now) { owner.act(*stack, now); });
  }
  // Polls until all of `peers` have done what they do.
  void run(std::list<std::function<void()>> peers) {
    std::atomic<std::size_t> left{peers.size()};
    std::list<std::thread> threads;
    for (auto& peer : peers) threads.emplace_back([&left, peer = std::move(peer)] { peer(), --left; });
    const TimeNs limit = monotonic_ns() + 120 * second_ns;
    TimeNs quiet_since = never;
    for (TimeNs now = monotonic_ns(); now < limit; now = monotonic_ns()) {
      const bool worked = station->poll(now);
      if (left == 0 && quiet_since == never) quiet_since = now;
      if (left == 0 && now > quiet_since + 300 * millisecond_ns) break;
      if (worked || !station->fall_asleep(now)) continue;
      const TimeNs due = std::min(station->next_deadline(), now + 5 * millisecond_ns);
      const timespec wait{0, std::max<TimeNs>(due - now, 0)};
      pollfd descriptor{device->wait_descriptor(), POLLIN, 0};
      ::ppoll(&descriptor, 1, &wait, nullptr);
    }
    for (auto& thread : threads) thread.join();
  }
};

class TcpAndTheKernel : public testing::Test {
 protected:
  static NamespacePair& namespaces() {
    static NamespacePair pair;
    return pair;
  }
  static bool connected() {
    static const bool good = namespaces().connect("10.9.0.1/24");
    return good;
  }
  void SetUp() override {
    if (!namespaces().missing.empty()) GTEST_SKIP() << namespaces().missing;
    ASSERT_TRUE(connected());
  }
  static std::unique_ptr<PacketPort> veth() {
    auto opened = PacketPort::open_interface("near");
    if (!opened) ADD_FAILURE() << opened.error().message;
    return opened ? std::move(*opened) : nullptr;
  }

  // The kernel's clients connect; each stream's bytes are their own.
  template <class InPeer>
  void expect_served(std::unique_ptr<PacketPort> device, const Impairments& bad, std::size_t clients, std::uint64_t bytes, InPeer in_peer) {
    ASSERT_NE(device, nullptr);
    Machine<TestOwner> machine(std::move(device), bad, 5);
    machine.owner.plan = {bytes, 256 << 10};
    ASSERT_TRUE(machine.stack->listen(port, 1, 256 << 10));
    std::vector<Exchanged> results(clients);
    std::list<std::function<void()>> peers;
    for (std::size_t i = 0; i < clients; ++i)
      peers.push_back([&, i] {
        in_peer([&] {
          const Fd fd = tcp_socket();
          const auto local = static_cast<std::uint16_t>(20'000 + i);
          const sockaddr_in from = address_of({kernel, local}), to = address_of({self, port});
          if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from) != 0) return;
          if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return;
          results[i] = exchange(fd.get(), 2u * local, bytes, 2u * local + 1);
        });
      });
    machine.run(std::move(peers));
    counters = machine.stack->counters();
    for (const Exchanged& result : results) {
      EXPECT_TRUE(result.whole);
      EXPECT_EQ(result.received, bytes);
      EXPECT_EQ(result.wrong, 0u);
    }
    ASSERT_EQ(machine.owner.flows.size(), clients);
    for (const auto& [tag, flow] : machine.owner.flows) {
      EXPECT_EQ(flow.read, bytes);
      EXPECT_EQ(flow.wrong, 0u);
      EXPECT_EQ(flow.error, FlowError::none);
    }
  }
  StackCounters counters;  // of what was served last
  void in_far(const std::function<void()>& what) { in_namespace(namespaces().peer.get(), what); }
  void expect_served_over_veth(const Impairments& bad, std::size_t clients, std::uint64_t bytes) {
    expect_served(veth(), bad, clients, bytes, [this](const auto& what) { in_far(what); });
  }
};

Impairments bad_network() {
  Impairments bad;
  bad.loss = 0.02;
  bad.duplicate = bad.corrupt = 0.01;
  bad.reorder = 0.02;
  bad.delay_ns = millisecond_ns;
  return bad;
}

TEST_F(TcpAndTheKernel, StreamsBothWaysToItsClients) {
  for (const std::uint64_t bytes : {1ull, 1000ull, 1ull << 20, 64ull << 20}) expect_served_over_veth({}, 1, bytes);
}

TEST_F(TcpAndTheKernel, ServesManyClientsAtOnce) { expect_served_over_veth({}, 64, 100'000); }

TEST_F(TcpAndTheKernel, StreamsBothWaysOverABadNetwork) { expect_served_over_veth(bad_network(), 4, 2 << 20); }

// The kernel asks for ECN; both ways lead through a queue that marks, and neither side lets it run over.
TEST_F(TcpAndTheKernel, SlowsDownForMarksAndHasTheKernelSlowDown) {
  in_far([] { ASSERT_TRUE(run("sysctl -w net.ipv4.tcp_ecn=1")); });
  Impairments marking;
  marking.delay_ns = millisecond_ns;
  marking.bytes_per_second = 25'000'000;
  marking.mark_bytes = 30'000;
  expect_served_over_veth(marking, 1, 8 << 20);
  in_far([] { EXPECT_TRUE(run("sysctl -w net.ipv4.tcp_ecn=2")); });
  EXPECT_GT(counters.marked_in, 0u);
  EXPECT_GT(counters.echoes_in, 0u);
  EXPECT_EQ(counters.repairs, 0u);
  EXPECT_EQ(counters.out_of_order, 0u);  // nothing of the kernel's was lost either
}

TEST_F(TcpAndTheKernel, StreamsBothWaysOverTap) {
  auto device = PacketPort::open_tap("offtap", {2, 0, 0, 0, 0, 9});
  if (!device) GTEST_SKIP() << device.error().message;
  // The kernel's end is in this thread's namespace, as the device is; threads are born there.
  ASSERT_TRUE(run("ip addr add 10.9.0.1/24 dev offtap"));
  expect_served(std::move(*device), {}, 2, 16 << 20, [](const auto& what) { what(); });
}

TEST_F(TcpAndTheKernel, ConnectsToItsServers) {
  for (const bool good : {true, false}) {
    auto device = veth();
    ASSERT_NE(device, nullptr);
    Machine<TestOwner> machine(std::move(device), good ? Impairments{} : bad_network(), 6);
    constexpr std::size_t count = 8;
    constexpr std::uint64_t bytes = 1 << 20;
    std::vector<Exchanged> results(count);
    Fd listening;
    in_far([&] {
      listening = tcp_socket();
      const sockaddr_in at = address_of({kernel, port});
      ASSERT_EQ(::bind(listening.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
      ASSERT_EQ(::listen(listening.get(), 64), 0);
    });
    std::list<std::function<void()>> peers;
    for (std::size_t i = 0; i < count; ++i)
      peers.push_back([&, i] {
        sockaddr_in from{};
        socklen_t size = sizeof from;
        const Fd fd(::accept(listening.get(), reinterpret_cast<sockaddr*>(&from), &size));
        const std::uint64_t name = ntohs(from.sin_port);
        if (fd) results[i] = exchange(fd.get(), 2 * name + 1, bytes, 2 * name);
      });
    for (std::size_t i = 0; i < count; ++i) {
      TestFlow& flow = machine.owner.add({bytes, 128 << 10}, 0, 0);
      flow.id = machine.stack->connect(0, {kernel, port}, flow.tag, 128 << 10, monotonic_ns()).value();
      const std::uint64_t name = machine.stack->flow(flow.id)->key.local.port;
      flow.send_stream = 2 * name;
      flow.receive_stream = 2 * name + 1;
    }
    machine.run(std::move(peers));
    for (const Exchanged& result : results) {
      EXPECT_TRUE(result.whole);
      EXPECT_EQ(result.received, bytes);
      EXPECT_EQ(result.wrong, 0u);
    }
    for (const auto& [tag, flow] : machine.owner.flows) {
      EXPECT_EQ(flow.read, bytes);
      EXPECT_EQ(flow.wrong, 0u);
      EXPECT_EQ(flow.error, FlowError::none);
    }
  }
}

TEST_F(TcpAndTheKernel, EchoesEachMessageAndALongStream) {
  auto device = veth();
  ASSERT_NE(device, nullptr);
  Machine<EchoOwner> machine(std::move(device), {}, 7);
  ASSERT_TRUE(machine.stack->listen(port, 1, EchoOwner::buffer_bytes));
  std::size_t good = 0;
  Exchanged stream;
  machine.run({[&] {
    in_far([&] {
      const Fd fd = tcp_socket();
      const sockaddr_in to = address_of({self, port});
      if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return;
      for (std::uint64_t i = 0; i < 2000; ++i) {
        std::uint64_t question[8] = {i, ~i}, answer[8] = {};
        if (::send(fd.get(), question, sizeof question, 0) != sizeof question) return;
        if (::recv(fd.get(), answer, sizeof answer, MSG_WAITALL) != sizeof answer) return;
        good += std::equal(std::begin(question), std::end(question), std::begin(answer));
      }
      stream = exchange(fd.get(), 77, 32 << 20, 77);
    });
  }});
  EXPECT_EQ(good, 2000u);
  EXPECT_TRUE(stream.whole);
  EXPECT_EQ(stream.received, 32u << 20);
  EXPECT_EQ(stream.wrong, 0u);
  EXPECT_EQ(machine.owner.gone, 1u);
}

TEST_F(TcpAndTheKernel, UnderstandsResetsAndSaysThem) {
  auto device = veth();
  ASSERT_NE(device, nullptr);
  Machine<TestOwner> machine(std::move(device), {}, 8);
  machine.owner.plan = {0, 65'536};
  ASSERT_TRUE(machine.stack->listen(port, 1, 65'536));
  int refused = 0;
  machine.run({[&] {
    in_far([&] {
      const sockaddr_in to = address_of({self, port}), nobody = address_of({self, port + 1});
      {
        const Fd fd = tcp_socket();
        const linger at_once{1, 0};
        ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return;
        if (::send(fd.get(), "x", 1, 0) != 1) return;
      }
      const Fd fd = tcp_socket();
      if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&nobody), sizeof nobody) != 0) refused = errno;
    });
  }});
  EXPECT_EQ(refused, ECONNREFUSED);
  ASSERT_EQ(machine.owner.flows.size(), 1u);
  EXPECT_EQ(machine.owner.flows.begin()->second.error, FlowError::reset);
  EXPECT_EQ(machine.stack->flows(), 0u);
}

TEST(PacketPort, SaysWhatIsWrongWithAnInterface) {
  const auto none = PacketPort::open_interface("nonesuch0");
  ASSERT_FALSE(none);
  EXPECT_FALSE(none.error().message.empty());
  EXPECT_FALSE(PacketPort::open_interface(std::string(100, 'x')));
  EXPECT_FALSE(PacketPort::open_tap("", {}));
}

}  // namespace
}  // namespace offpath::kernel_test
