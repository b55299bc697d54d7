// AF_XDP sockets as ports of the stack, with Linux's own TCP as the peer, over veth pairs of one queue and of several.
// Skipped, with the reason, where no network namespaces can be made, or where the kernel has no AF_XDP.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "beside_the_kernel.h"
#include "raw_frames.h"
#include "stack_machine.h"
#include "tcp/port/packet_port.h"
#include "tcp/port/xdp_device.h"
#include "tcp/port/xdp_port.h"
#include "tcp/segment/icmp.h"
#include "testing/tcp/frames.h"
#include "wire/areas/flow_steering.h"

namespace offpath::kernel_test {
namespace {

using Ports = std::vector<std::unique_ptr<Port>>;

XdpOptions options_of(const std::string& interface, std::uint32_t cores = 1) {
  XdpOptions options{interface, {}, cores, false};
  (tests_ipv6() ? options.targets.v6 : options.targets.v4) = self;
  return options;
}

class XdpAndTheKernel : public BesideTheKernel {
 protected:
  void SetUp() override {
    BesideTheKernel::SetUp();
    const Fd fd(::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
    if (!fd) GTEST_SKIP() << "this kernel has no AF_XDP";
  }
  static Ports open(const XdpOptions& options = options_of("near")) {
    auto opened = open_xdp(options);
    if (!opened) ADD_FAILURE() << opened.error().message;
    return opened ? std::move(*opened) : Ports{};
  }
  static std::unique_ptr<Port> open_one() {
    Ports ports = open();
    return ports.empty() ? nullptr : std::move(ports.front());
  }
  static Failure why_not(const XdpOptions& options) {
    const auto opened = open_xdp(options);
    return opened ? Failure{Error::io, "it was opened"} : opened.error();
  }
};

struct Quad {
  IpAddress peer;
  std::uint16_t peer_port, own_port;
};

std::vector<std::byte> bytes_of(const FrameToSend& frame) {
  std::vector<std::byte> bytes(frame.header.begin(), frame.header.begin() + frame.header_bytes);
  for (const Bytes& part : frame.payload) bytes.insert(bytes.end(), part.begin(), part.end());
  return bytes;
}

std::vector<std::byte> segment_of(const Quad& quad, const MacAddress& to) {
  Segment segment;
  segment.key = {{quad.peer, quad.peer_port}, {self, quad.own_port}};
  segment.flags = flag::ack;
  return bytes_of(segment_frame(segment, to, {2, 0, 0, 0, 0, 1}, {}, {}));
}

// To a neighbour that is not there.
FrameToSend own_segment(const MacAddress& from) {
  Segment segment;
  segment.key = {{self, 1}, {kernel, 2}};
  segment.flags = flag::ack;
  return segment_frame(segment, {2, 0, 0, 0, 0, 9}, from, {}, {});
}

// Has a header of IPv4 that is `more` bytes longer.
void lengthen(std::vector<std::byte>& frame, std::size_t more) {
  frame.insert(frame.begin() + ethernet_header_bytes + 20, more, std::byte{1});  // options that say nothing
  frame[ethernet_header_bytes] = static_cast<std::byte>(0x40 | (20 + more) / 4);
}

std::uint16_t type_of(const ReceivedFrame& frame) { return read_ethernet_header(frame.bytes.data()).type; }
bool is_ip(const ReceivedFrame& frame) {
  return type_of(frame) == (tests_ipv6() ? ethertype_ipv6 : ethertype_ipv4) && !read_neighbour_frame(frame.bytes);
}

// Which of the ports receive a frame that `is_it`. Waits long for as many as are `expected`, and a moment for others.
template <class IsIt>
std::vector<std::size_t> receivers(const std::vector<Port*>& ports, std::size_t expected, const IsIt& is_it) {
  std::array<ReceivedFrame, 64> frames;
  std::vector<std::size_t> found;
  TimeNs end = monotonic_ns() + (expected == 0 ? 1 : 30) * second_ns;
  for (int rounds_left = 3; monotonic_ns() < end || (!found.empty() && rounds_left-- > 0);)
    for (std::size_t at = 0; at < ports.size(); ++at) {
      const std::size_t count = ports[at]->receive(frames, monotonic_ns());
      for (std::size_t i = 0; i < count; ++i) {
        if (!is_it(frames[i])) continue;
        found.push_back(at);
        if (found.size() == expected) end = monotonic_ns() + 2 * millisecond_ns;
      }
    }
  std::ranges::sort(found);
  return found;
}

std::vector<Port*> all_of(const Ports& ports) {
  std::vector<Port*> all;
  for (const auto& each : ports) all.push_back(each.get());
  return all;
}

// The kernel's checksums and sizes are as it leaves them to a device: nothing is set at its end.
TEST_F(XdpAndTheKernel, StreamsBothWaysToItsClients) {
  for (const std::uint64_t bytes : {1ull, 1000ull, 1ull << 20, 32ull << 20})
    expect_served(open_one(), {}, 1, bytes, in_far);
  expect_served(open_one(), {}, 64, 100'000, in_far);
}

TEST_F(XdpAndTheKernel, ConnectsToItsServersAlsoOverABadNetwork) {
  Impairments bad;
  bad.loss = bad.reorder = 0.02;
  bad.duplicate = bad.corrupt = 0.01;
  bad.delay_ns = millisecond_ns;
  expect_connected(open_one(), {}, 8, 1 << 20, in_far);
  expect_connected(open_one(), bad, 4, 1 << 20, in_far);
  expect_served(open_one(), bad, 4, 1 << 20, in_far);
}

// Foreign frames reach the kernel, and so packet sockets, as without a program.
TEST_F(XdpAndTheKernel, TakesTcpOfItsAddressAndLeavesTheRestToTheKernel) {
  Ports ports = open();
  auto kernels = PacketPort::open_interface("near", std::nullopt);
  ASSERT_TRUE(!ports.empty() && kernels);
  const MacAddress mac = ports[0]->capabilities().mac;
  const std::vector<Port*> both{ports[0].get(), kernels->get()};
  // The receiver: the port is 0, the kernel 1.
  using Seen = std::vector<std::size_t>;
  const auto expect_seen = [&](const std::vector<std::byte>& frame, const Seen& expected) {
    in_far([&] { RawSender().send(frame); });
    const auto is_it = [&](const ReceivedFrame& arrived) { return std::ranges::equal(arrived.bytes, frame); };
    EXPECT_EQ(receivers(both, expected.size(), is_it), expected);
  };
  const Seen port_alone{0}, kernel_alone{1}, port_and_kernel{0, 1};
  const auto segment = segment_of({kernel, 1000, 7000}, mac);
  expect_seen(segment, port_alone);
  auto others = segment;
  others[ethernet_header_bytes + (tests_ipv6() ? 39 : 19)] = std::byte{77};  // the end of the target's address
  expect_seen(others, kernel_alone);
  auto datagram = segment;
  datagram[ethernet_header_bytes + (tests_ipv6() ? 6 : 9)] = std::byte{17};  // UDP
  expect_seen(datagram, kernel_alone);
  auto tagged = segment;
  const std::array vlan{std::byte{0x81}, std::byte{0}, std::byte{0}, std::byte{5}};
  tagged.insert(tagged.begin() + 12, vlan.begin(), vlan.end());
  expect_seen(tagged, Seen());  // packet sockets do not see it either
  if (tests_ipv6()) {
    // Behind an extension header it is no less the agent's: the packet socket has it.
    auto extended = segment;
    extended[ethernet_header_bytes + 6] = std::byte{60};
    const std::array options{std::byte{6}, std::byte{0}, std::byte{1}, std::byte{4},
                             std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}};
    extended.insert(extended.begin() + ethernet_header_bytes + 40, options.begin(), options.end());
    expect_seen(extended, port_and_kernel);
  } else {
    auto fragment = segment;
    fragment[ethernet_header_bytes + 6] = std::byte{0x20};
    expect_seen(fragment, kernel_alone);
    auto with_options = segment;
    lengthen(with_options, 40);
    expect_seen(with_options, port_alone);
  }
  // Undelivered packets cause ICMP, which the kernel may read as well.
  auto message = segment;
  message[ethernet_header_bytes + (tests_ipv6() ? 6 : 9)] = std::byte{tests_ipv6() ? protocol_icmpv6 : protocol_icmp};
  message[ethernet_header_bytes + (tests_ipv6() ? 40 : 20)] =
      std::byte{tests_ipv6() ? icmpv6_too_big : icmp_unreachable};
  expect_seen(message, port_and_kernel);
}

// By any queue. With several queues, those of different processors differ.
TEST_F(XdpAndTheKernel, EachFlowReachesItsCoreWhateverTheQueue) {
  constexpr std::uint32_t cores = 3;
  std::mt19937_64 random{7};
  for (const std::uint32_t queues : {1u, 2u, 5u}) {
    const std::string suffix = std::to_string(queues), near = "near" + suffix, far = "far" + suffix;
    ASSERT_TRUE(
        run(fmt::format("ip link add {0} numrxqueues {2} numtxqueues {2} type veth peer name {1} numrxqueues {2} "
                        "numtxqueues {2} && ip link set {0} up && ip link set {1} up",
                        near, far, queues)));
    const Ports ports = open(options_of(near, cores));
    ASSERT_EQ(ports.size(), cores);
    std::array<std::size_t, cores> of_core{};
    const RawSender sender(far.c_str());
    for (std::size_t i = 0; i < 200; ++i) {
      IpAddress peer = kernel;
      peer.bytes[13] = static_cast<std::uint8_t>(random());
      const Quad quad{peer, static_cast<std::uint16_t>(random()), static_cast<std::uint16_t>(random())};
      auto frame = segment_of(quad, ports[0]->capabilities().mac);
      if (!tests_ipv6() && i % 3 == 0) lengthen(frame, 4 * (random() % 11));
      std::thread([&] {
        cpu_set_t processor;
        CPU_ZERO(&processor);
        CPU_SET(i % std::max(std::thread::hardware_concurrency(), 1u), &processor);
        static_cast<void>(::sched_setaffinity(0, sizeof processor, &processor));
        sender.send(frame);
      }).join();
      const auto found = receivers(
          all_of(ports), 1, [&](const ReceivedFrame& arrived) { return std::ranges::equal(arrived.bytes, frame); });
      const std::uint32_t core = wire::core_of_flow(quad.peer, quad.peer_port, self, quad.own_port, cores);
      ASSERT_EQ(found, std::vector<std::size_t>{core}) << i;
      ++of_core[core];
    }
    for (const std::size_t count : of_core) EXPECT_GT(count, 30u);
    ASSERT_TRUE(run("ip link del " + near));
  }
}

TEST_F(XdpAndTheKernel, CoresOfOneQueueSendAndReceiveAtOnce) {
  Ports ports = open(options_of("near", 2));
  ASSERT_EQ(ports.size(), 2u);
  constexpr std::size_t each = 20'000, on_their_way_max = 1000;  // for which one core has room
  const MacAddress mac = ports[0]->capabilities().mac;
  std::atomic<bool> sent{false};
  std::array<std::atomic<std::size_t>, 2> received{};
  std::vector<std::thread> cores;
  for (std::size_t core = 0; core < 2; ++core)
    cores.emplace_back([&, core] {
      std::array<ReceivedFrame, 64> frames;
      const FrameToSend echo = own_segment(mac);
      const TimeNs deadline = monotonic_ns() + 60 * second_ns;
      const auto all_have_come = [&] { return received[0] + received[1] >= each || monotonic_ns() > deadline; };
      TimeNs quiet_since = monotonic_ns();
      while (!sent || !all_have_come() || monotonic_ns() < quiet_since + 100 * millisecond_ns) {
        const std::size_t count = ports[core]->receive(frames, monotonic_ns());
        for (std::size_t i = 0; i < count; ++i) {
          received[core] += is_ip(frames[i]);
          static_cast<void>(ports[core]->transmit({&echo, 1}, monotonic_ns()));
        }
        if (count > 0) quiet_since = monotonic_ns();
      }
    });
  in_far([&] {
    const RawSender sender;
    for (std::size_t i = 0; i < each; ++i) {
      const auto own_port = static_cast<std::uint16_t>(i);
      sender.send(segment_of({kernel, 1000, own_port}, mac));
      while (i + 1 > received[0] + received[1] + on_their_way_max) std::this_thread::yield();
    }
  });
  sent = true;
  for (auto& core : cores) core.join();
  EXPECT_EQ(received[0] + received[1], each);
  EXPECT_GT(received[0], 0u);
  EXPECT_GT(received[1], 0u);
  EXPECT_EQ(ports[0]->counters().dropped_in + ports[1]->counters().dropped_in, 0u);
}

// Cores of one queue share its packet memory: a core that reads nothing keeps only its share.
TEST_F(XdpAndTheKernel, ACoreThatReadsNothingLeavesTheOthersMemoryForTheirFrames) {
  const Ports ports = open(options_of("near", 2));
  ASSERT_EQ(ports.size(), 2u);
  const MacAddress mac = ports[0]->capabilities().mac;
  std::array<std::vector<std::byte>, 2> of_core;
  for (std::uint16_t from = 1; from < 1000; ++from)
    of_core[wire::core_of_flow(kernel, from, self, 7000, 2)] = segment_of({kernel, from, 7000}, mac);
  ASSERT_TRUE(!of_core[0].empty() && !of_core[1].empty());
  in_far([&] {
    const RawSender sender;
    for (std::uint32_t i = 0; i < 2 * XdpQueue::receive_chunks; ++i) sender.send(of_core[0]);
    sender.send(of_core[1]);
  });
  EXPECT_TRUE(receives(*ports[1], is_ip));
  EXPECT_GT(ports[0]->counters().dropped_in, 0u);
  EXPECT_EQ(ports[1]->counters().dropped_in, 0u);
  EXPECT_TRUE(receives(*ports[0], is_ip));
}

TEST_F(XdpAndTheKernel, SendersOfAQueueHaveChunksOfTheirOwn) {
  auto queue = XdpQueue::make(3, 2, 2048);
  ASSERT_TRUE(queue) << queue.error().message;
  std::vector<std::uint64_t> first(2 * XdpQueue::transmit_chunks), second(first.size());
  EXPECT_EQ((*queue)->take(0, first), XdpQueue::transmit_chunks);
  EXPECT_EQ((*queue)->take(0, first), 0u);
  EXPECT_EQ((*queue)->take(1, second), XdpQueue::transmit_chunks);
  EXPECT_TRUE(XdpQueue::make(16, 0, 2048));
}

// The kernel has said nothing yet of the chunks that it took, as between its two stores at the end of a burst.
TEST_F(XdpAndTheKernel, ChunksComeBackBeforeTheKernelTellsThatItHasTakenThem) {
  auto queue = XdpQueue::make(1, 1, 2048);
  ASSERT_TRUE(queue) << queue.error().message;
  std::vector<std::uint64_t> chunks(XdpQueue::receive_chunks);
  for (std::size_t i = 0; i < chunks.size(); ++i) chunks[i] = i * 2048;
  for (std::size_t at = 0; at < chunks.size(); at += 64)
    (*queue)->give_back(std::span(chunks).subspan(at, 64), nullptr);  // no socket is to be woken
}

// A command that outlives the agent would keep the queues from the next one.
TEST_F(XdpAndTheKernel, ProgramsThatAreExecutedInheritNoSocket) {
  const Ports ports = open(options_of("near", 2));
  ASSERT_EQ(ports.size(), 2u);
  std::size_t sockets = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    int domain = 0;
    socklen_t bytes = sizeof domain;
    if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0 || domain != AF_XDP) continue;
    ++sockets;
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << fd;
  }
  EXPECT_GE(sockets, 2u);
}

// Each core is a sender of its own at one queue, and packet memory is locked for these only.
TEST(XdpInterface, EachCoreSendsOnOneQueue) {
  for (const std::uint32_t receive_queues : {1u, 3u, 64u})
    for (const std::uint32_t transmit_queues : {1u, 2u, 64u})
      for (const std::uint32_t cores : {1u, 2u, 7u, 16u, 64u}) {
        XdpInterface interface;
        interface.receive_queues = receive_queues, interface.transmit_queues = transmit_queues;
        std::vector<std::uint32_t> senders(receive_queues);
        for (std::uint32_t core = 0; core < cores; ++core) {
          const XdpOutlet outlet = outlet_of(interface, core);
          ASSERT_LT(outlet.queue, std::min(receive_queues, transmit_queues));
          EXPECT_EQ(outlet.sender, senders[outlet.queue]++);
        }
        for (std::uint32_t queue = 0; queue < receive_queues; ++queue)
          EXPECT_EQ(senders_of(interface, queue, cores), senders[queue]);
      }
}

TEST_F(XdpAndTheKernel, AFrameWakesWhoSleeps) {
  const auto device = open_one();
  ASSERT_NE(device, nullptr);
  std::array<ReceivedFrame, 64> frames;
  const auto is_woken = [&](int milliseconds) {
    pollfd descriptor{device->wait_descriptor(), POLLIN, 0};
    return ::poll(&descriptor, 1, milliseconds) == 1;
  };
  const auto frame = segment_of({kernel, 1000, 7000}, device->capabilities().mac);
  for (int i = 0; i < 3; ++i) {
    for (TimeNs now = monotonic_ns(), end = now + 10 * millisecond_ns; now < end; now = monotonic_ns())
      static_cast<void>(device->receive(frames, now));
    EXPECT_FALSE(is_woken(0));
    in_far([&] { RawSender().send(frame); });
    EXPECT_TRUE(is_woken(10'000));
  }
  in_far([&] { send_raw_frame(device->capabilities().mac, {0x08, 0x06}); });  // of the packet socket
  EXPECT_TRUE(is_woken(10'000));
}

// Frames wait in the ring while the interface is down. When it is full they are lost; when it is up again all go.
TEST_F(XdpAndTheKernel, WhatAnInterfaceDoesNotTakeIsLostAfterAWhile) {
  const auto device = open_one();
  ASSERT_NE(device, nullptr);
  const FrameToSend frame = own_segment(device->capabilities().mac);
  ASSERT_TRUE(run("ip link set near down"));
  std::size_t taken = 0;
  while (taken < 10'000 && device->transmit({&frame, 1}, second_ns) == 1) ++taken;
  EXPECT_LT(taken, 10'000u);
  EXPECT_LT(device->next_due(), 2 * second_ns);
  EXPECT_EQ(device->transmit({&frame, 1}, 3 * second_ns), 1u);
  EXPECT_EQ(device->counters().dropped_out, 1u);
  EXPECT_EQ(device->counters().frames_out, taken);
  ASSERT_TRUE(run("ip link set near up"));
  std::array<ReceivedFrame, 64> frames;
  for (TimeNs now = 4 * second_ns; now < 5 * second_ns && device->next_due() != never; now += 100 * millisecond_ns) {
    static_cast<void>(device->receive(frames, now));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(device->next_due(), never);
  EXPECT_EQ(device->transmit({&frame, 1}, 6 * second_ns), 1u);
}

TEST_F(XdpAndTheKernel, TheProgramGoesWithItsPorts) {
  const std::string shown = "ip -details link show near | grep -q xdp";
  auto device = open_one();
  ASSERT_NE(device, nullptr);
  EXPECT_TRUE(run(shown));
  const Failure second = why_not(options_of("near"));
  EXPECT_EQ(second.code, Error::exists) << second.message;
  const auto frame = segment_of({kernel, 1000, 7000}, device->capabilities().mac);
  device.reset();
  EXPECT_FALSE(run(shown));
  auto kernels = PacketPort::open_interface("near", std::nullopt);
  ASSERT_TRUE(kernels);
  in_far([&] { RawSender().send(frame); });
  EXPECT_TRUE(receives(**kernels, is_ip));
  EXPECT_NE(open_one(), nullptr);
}

TEST(XdpInterface, WhoseFramesCannotBeToldApartOrThatHasTooManyQueuesIsRefused) {
  const XdpInterface good{.name = "eth0", .driver = "driver", .receive_queues = 64};
  EXPECT_TRUE(check_xdp_interface(good, 2));
  XdpInterface takes_off = good, wide = good;
  takes_off.takes_tags_off = true;
  wide.receive_queues = 65;
  const Status tags = check_xdp_interface(takes_off, 2), queues = check_xdp_interface(wide, 2);
  ASSERT_TRUE(!tags && !queues);
  EXPECT_NE(tags.error().message.find("ethtool -K eth0 rxvlan off"), std::string::npos) << tags.error().message;
  EXPECT_NE(queues.error().message.find("ethtool -L eth0 combined 2"), std::string::npos) << queues.error().message;
}

TEST_F(XdpAndTheKernel, WhatCannotBeOpenedSaysWhy) {
  EXPECT_NE(why_not(options_of("nonesuch0")).message.find("nonesuch0"), std::string::npos);
  EXPECT_NE(why_not(options_of("")).message.find("is not the name of an interface"), std::string::npos);
  ASSERT_TRUE(run("ip link set lo up"));
  const Failure none = why_not(options_of("lo"));
  EXPECT_EQ(none.code, Error::unsupported) << none.message;
  EXPECT_NE(none.message.find("tcp.device = lo"), std::string::npos) << none.message;
  XdpOptions zero_copy = options_of("near");
  zero_copy.zero_copy_only = true;
  const Failure copies = why_not(zero_copy);
  EXPECT_EQ(copies.code, Error::unsupported) << copies.message;
  EXPECT_NE(copies.message.find("veth, has no zero-copy"), std::string::npos) << copies.message;
  ASSERT_TRUE(run("ip link add down0 type veth peer name down1"));
  EXPECT_NE(why_not(options_of("down0")).message.find("ip link set down0 up"), std::string::npos);
  ASSERT_TRUE(run("ip link del down0"));
}

}  // namespace
}  // namespace offpath::kernel_test
