// The stack against Linux's own TCP, over veth and TAP, good networks and bad ones, as server and as client. Skipped,
// with the reason, where no network namespaces can be made.
#include <gtest/gtest.h>

#include "beside_the_kernel.h"
#include "raw_frames.h"
#include "stack_machine.h"
#include "tcp/port/packet_port.h"
#include "tcp/port/shared_address.h"
#include "tcp/segment/neighbour_message.h"

namespace offpath::kernel_test {
namespace {

using namespace tcp;

// Echoes received data from its receive buffer.
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
      if (what->what & (change::finished | change::closed)) stack.finish(what->flow);
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

FrameTargets own_targets() {
  FrameTargets targets;
  (tests_ipv6() ? targets.v6 : targets.v4) = self;
  return targets;
}

class TcpAndTheKernel : public BesideTheKernel {
 protected:
  static std::unique_ptr<PacketPort> veth(const std::optional<FrameTargets>& targets = own_targets()) {
    auto opened = PacketPort::open_interface("near", targets);
    if (!opened) ADD_FAILURE() << opened.error().message;
    return opened ? std::move(*opened) : nullptr;
  }

  Served served;  // of the last served data
  void expect_served_over_veth(const Impairments& bad, std::size_t clients, std::uint64_t bytes,
                               std::uint32_t buffer_bytes = 256 << 10) {
    served = expect_served(veth(), bad, clients, bytes, in_far, buffer_bytes);
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

// The kernel asks for ECN; both ways lead through a queue that marks and has less room than a sender's window, and
// neither side lets it run over. Segments that a sender repeats because this process had to wait do not count.
TEST_F(TcpAndTheKernel, SlowsDownForMarksAndHasTheKernelSlowDown) {
  in_far([] { ASSERT_TRUE(run("sysctl -w net.ipv4.tcp_ecn=1")); });
  Impairments marking;
  marking.delay_ns = millisecond_ns;
  marking.bytes_per_second = 25'000'000;
  marking.mark_bytes = 30'000;
  marking.queue_bytes = 500'000;
  expect_served_over_veth(marking, 1, 8 << 20, 2 << 20);
  in_far([] { EXPECT_TRUE(run("sysctl -w net.ipv4.tcp_ecn=2")); });
  EXPECT_GT(served.stack.marked_in, 0u);
  EXPECT_GT(served.stack.echoes_in, 0u);
  EXPECT_EQ(served.port.dropped_out, 0u);
  EXPECT_EQ(served.port.dropped_in, 0u);
}

TEST_F(TcpAndTheKernel, StreamsBothWaysOverTap) {
  auto device = PacketPort::open_tap("offtap", {2, 0, 0, 0, 0, 9});
  if (!device) GTEST_SKIP() << device.error().message;
  // The kernel's end is in this thread's namespace, as the device is; threads are born there.
  ASSERT_TRUE(run("ip addr add 10.9.0.1/24 dev offtap && ip addr add fd00::a09:1/120 dev offtap nodad"));
  expect_served(std::move(*device), {}, 2, 16 << 20, [](const auto& what) { what(); });
}

TEST_F(TcpAndTheKernel, ConnectsToItsServers) {
  expect_connected(veth(), {}, 8, 1 << 20, in_far);
  expect_connected(veth(), bad_network(), 8, 1 << 20, in_far);
}

TEST_F(TcpAndTheKernel, EchoesEachMessageAndALongStream) {
  auto device = veth();
  ASSERT_NE(device, nullptr);
  Machine<EchoOwner> machine(std::move(device), {}, 7);
  ASSERT_TRUE(machine.stack->listen(test_family(), port, 1, EchoOwner::buffer_bytes));
  std::size_t good = 0;
  Exchanged stream;
  machine.run({[&] {
    in_far([&] {
      const Fd fd = tcp_socket();
      const sockaddr_storage to = address_of({self, port});
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
  Machine<MemoryOwner> machine(std::move(device), {}, 8);
  machine.owner.plan = {0, 65'536};
  ASSERT_TRUE(machine.stack->listen(test_family(), port, 1, 65'536));
  int refused = 0;
  machine.run({[&] {
    in_far([&] {
      const sockaddr_storage to = address_of({self, port}), nobody = address_of({self, port + 1});
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

TEST_F(TcpAndTheKernel, FramesOfAnotherVlanAreNotTaken) {
  const auto expect_untagged_only = [&](Port& device) {
    const auto arrives = [&](const auto& after_addresses, bool expected) {
      in_far([&] { send_raw_frame(device.capabilities().mac, after_addresses); });
      return receives(device, is_experiment, expected);
    };
    EXPECT_FALSE(arrives(of_vlan_5, false));
    EXPECT_TRUE(arrives(untagged, true));
    EXPECT_TRUE(arrives(of_a_priority, true));
  };
  const auto alone = veth(std::nullopt);
  ASSERT_NE(alone, nullptr);
  expect_untagged_only(*alone);
  Fanout fanout;
  const auto of_several = PacketPort::open_interface("near", std::nullopt, &fanout);
  ASSERT_TRUE(of_several) << of_several.error().message;
  ASSERT_TRUE(fanout.begin(std::nullopt));
  expect_untagged_only(**of_several);
}

// Frames for the kernel alone do not wake the agent.
TEST_F(TcpAndTheKernel, FramesThatAStackDoesNotReadAreLeftToTheKernel) {
  const auto expect_own_only = [&](Port& device) {
    const auto send = [&](const IpAddress& to, std::uint8_t protocol, bool is_fragment) {
      constexpr std::uint8_t fragment_header = 44, payload_bytes = 6;
      std::vector<std::byte> header(ip_header_bytes(test_family()));
      const bool has_header = tests_ipv6() && is_fragment;
      write_ip_header({.source = kernel, .target = to, .protocol = has_header ? fragment_header : protocol},
                      payload_bytes, header.data());
      if (!tests_ipv6()) header[6] = std::byte{is_fragment ? std::uint8_t{0x20} : std::uint8_t{0x40}};
      std::vector<std::uint8_t> frame =
          tests_ipv6() ? std::vector<std::uint8_t>{0x86, 0xdd} : std::vector<std::uint8_t>{0x08, 0x00};
      for (const std::byte byte : header) frame.push_back(static_cast<std::uint8_t>(byte));
      in_far([&] { send_raw_frame(device.capabilities().mac, frame); });
    };
    const auto is_segment = [](const ReceivedFrame& frame) {
      return read_ethernet_header(frame.bytes.data()).type == (tests_ipv6() ? ethertype_ipv6 : ethertype_ipv4) &&
             !read_neighbour_frame(frame.bytes);
    };
    send(test_address(0x0a090003), protocol_tcp, false);
    send(self, 17, false);
    send(self, protocol_tcp, true);
    FrameToSend own;
    const MacAddress mac = device.capabilities().mac;
    write_neighbour_frame({false, mac, self, {}, kernel}, mac, group_mac(kernel), own);
    EXPECT_EQ(device.transmit(std::span(&own, 1), monotonic_ns()), 1u);
    EXPECT_FALSE(receives(device, is_segment, false));
    EXPECT_LE(device.counters().frames_in, 1u);  // the answer to the question
    send(self, protocol_tcp, false);
    EXPECT_TRUE(receives(device, is_segment));
  };
  const auto alone = veth();
  ASSERT_NE(alone, nullptr);
  expect_own_only(*alone);
  Fanout fanout;
  const auto of_several = PacketPort::open_interface("near", own_targets(), &fanout);
  ASSERT_TRUE(of_several) << of_several.error().message;
  ASSERT_TRUE(fanout.begin(own_targets()));
  expect_own_only(**of_several);
}

TEST_F(TcpAndTheKernel, LearnsThatTheKernelHasItsAddress) {
  if (!tests_ipv6()) GTEST_SKIP() << "IPv4 addresses are not checked";
  const auto device = veth(FrameTargets{{}, kernel});
  ASSERT_NE(device, nullptr);
  StackOptions options;
  options.v6 = {kernel, 120, {}};
  options.secret = {1, 2};
  const auto congestion = congestion_control("cubic").value();
  MemoryOwner owner;
  Stack stack(options, device->capabilities(), *congestion, owner, monotonic_ns());
  Station station(*device, stack);
  for (const TimeNs end = monotonic_ns() + 60 * second_ns; monotonic_ns() < end && !stack.is_duplicate();)
    if (!station.poll(monotonic_ns())) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(stack.is_duplicate());
}

TEST_F(TcpAndTheKernel, TellsTheKernelThatAnAddressIsTaken) {
  if (!tests_ipv6()) GTEST_SKIP() << "IPv4 addresses are not checked";
  Machine<MemoryOwner> machine(veth(), {}, 9);
  const std::string address = text_of(self) + "/120 dev far";
  bool is_told = false;
  machine.run({[&] {
    in_far([&] {
      ASSERT_TRUE(run("sysctl -w net.ipv6.conf.far.accept_dad=1 && ip addr add " + address));
      for (int i = 0; i < 600 && !is_told; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        is_told = run("ip addr show dev far | grep dadfailed");
      }
      EXPECT_TRUE(run("ip addr del " + address + " && sysctl -w net.ipv6.conf.far.accept_dad=0"));
    });
  }});
  EXPECT_TRUE(is_told);
}

// The kernel would answer its peers with RST.
TEST_F(TcpAndTheKernel, SharesAnAddressWithIt) {
  if (tests_ipv6()) GTEST_SKIP() << "an IPv6 address is the agent's alone";
  const std::string address = text_of(self) + "/24";
  ASSERT_TRUE(run("ip addr add " + address + " dev near"));
  std::string missing;
  {
    const auto shared = SharedAddress::begin("near", self);
    if (shared)
      expect_served_over_veth({}, 4, 1 << 20);
    else
      missing = shared.error().message;
  }
  EXPECT_TRUE(run("ip addr del " + address + " dev near"));
  if (!missing.empty()) GTEST_SKIP() << missing;
}

TEST(PacketPort, SaysWhatIsWrongWithAnInterface) {
  const auto none = PacketPort::open_interface("nonesuch0", own_targets());
  ASSERT_FALSE(none);
  EXPECT_FALSE(none.error().message.empty());
  EXPECT_FALSE(PacketPort::open_interface(std::string(100, 'x'), own_targets()));
  EXPECT_FALSE(PacketPort::open_tap("", {}));
}

}  // namespace
}  // namespace offpath::kernel_test
