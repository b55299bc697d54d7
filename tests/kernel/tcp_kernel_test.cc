// The stack against Linux's own TCP, over veth and TAP, good networks and bad ones, as server and as client. Skipped,
// with the reason, where no network namespaces can be made.
#include <gtest/gtest.h>

#include "beside_the_kernel.h"
#include "raw_frames.h"
#include "stack_machine.h"
#include "tcp/port/packet_port.h"
#include "tcp/segment/frame_writer.h"

namespace offpath::kernel_test {
namespace {

using namespace tcp;

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

class TcpAndTheKernel : public BesideTheKernel {
 protected:
  static std::unique_ptr<PacketPort> veth(std::optional<Ipv4Address> address = self) {
    auto opened = PacketPort::open_interface("near", address);
    if (!opened) ADD_FAILURE() << opened.error().message;
    return opened ? std::move(*opened) : nullptr;
  }

  StackCounters counters;  // of what was served last
  void expect_served_over_veth(const Impairments& bad, std::size_t clients, std::uint64_t bytes) {
    counters = expect_served(veth(), bad, clients, bytes, in_far);
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
  expect_connected(veth(), {}, 8, 1 << 20, in_far);
  expect_connected(veth(), bad_network(), 8, 1 << 20, in_far);
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
  Machine<MemoryOwner> machine(std::move(device), {}, 8);
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

TEST_F(TcpAndTheKernel, FramesOfAnotherVlanAreNotTaken) {
  const auto expect_untagged_only = [&](Port& device) {
    const auto arrives = [&](const auto& after_addresses) {
      in_far([&] { send_raw_frame(device.capabilities().mac, after_addresses); });
      return receives(device, is_experiment);
    };
    EXPECT_FALSE(arrives(of_vlan_5));
    EXPECT_TRUE(arrives(untagged));
    EXPECT_TRUE(arrives(of_a_priority));
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

// Of frames that nobody but the kernel wants, none wakes the agent.
TEST_F(TcpAndTheKernel, FramesThatAStackDoesNotReadAreLeftToTheKernel) {
  const auto expect_own_only = [&](Port& device) {
    const auto send = [&](Ipv4Address to, std::uint8_t protocol, std::uint8_t fragment) {
      std::vector<std::uint8_t> frame = {0x08, 0x00, 0x45,     0, 0, 40, 0, 0, fragment,
                                         0,    64,   protocol, 0, 0, 10, 9, 0, 1};
      for (const unsigned shift : {24u, 16u, 8u, 0u}) frame.push_back(static_cast<std::uint8_t>(to.value >> shift));
      in_far([&] { send_raw_frame(device.capabilities().mac, frame); });
    };
    const auto is_ipv4 = [](const ReceivedFrame& frame) {
      return read_ethernet_header(frame.bytes.data()).type == ethertype_ipv4;
    };
    send({0x0a090003}, protocol_tcp, 0x40);
    send(self, 17, 0x40);
    send(self, protocol_tcp, 0x20);
    FrameToSend own;
    write_arp_frame({false, device.capabilities().mac, self, {}, kernel}, device.capabilities().mac, broadcast_mac,
                    own);
    EXPECT_EQ(device.transmit(std::span(&own, 1), monotonic_ns()), 1u);
    EXPECT_FALSE(receives(device, is_ipv4));
    EXPECT_LE(device.counters().frames_in, 1u);  // the answer to the ARP message
    send(self, protocol_tcp, 0x40);
    EXPECT_TRUE(receives(device, is_ipv4));
  };
  const auto alone = veth();
  ASSERT_NE(alone, nullptr);
  expect_own_only(*alone);
  Fanout fanout;
  const auto of_several = PacketPort::open_interface("near", self, &fanout);
  ASSERT_TRUE(of_several) << of_several.error().message;
  ASSERT_TRUE(fanout.begin(self));
  expect_own_only(**of_several);
}

TEST(PacketPort, SaysWhatIsWrongWithAnInterface) {
  const auto none = PacketPort::open_interface("nonesuch0", self);
  ASSERT_FALSE(none);
  EXPECT_FALSE(none.error().message.empty());
  EXPECT_FALSE(PacketPort::open_interface(std::string(100, 'x'), self));
  EXPECT_FALSE(PacketPort::open_tap("", {}));
}

}  // namespace
}  // namespace offpath::kernel_test
