// DPDK's virtual devices as ports of the stack, with Linux's own TCP as the peer: net_af_packet on one end of a veth
// pair, net_tap; and net_virtio_user over net_vhost, which has interrupts and segmentation as cards have. Skipped, with
// the reason, where no network namespaces can be made.
#include <gtest/gtest.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <signal.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "beside_the_kernel.h"
#include "raw_frames.h"
#include "stack_machine.h"
#include "tcp/port/dpdk_port.h"
#include "tcp/segment/ipv4.h"
#include "testing/tcp/frames.h"
#include "wire/areas/flow_steering.h"

namespace offpath::kernel_test {
namespace {

const std::vector<std::string> eal{"--no-huge", "-m", "64", "--no-pci"};
const std::string on_veth = "net_af_packet0,iface=near", on_tap = "net_tap0,iface=dtap0";

class DpdkAndTheKernel : public BesideTheKernel {
 protected:
  static std::unique_ptr<Port> open(const std::string& device) {
    auto opened = open_all(device, 1);
    return opened.empty() ? nullptr : std::move(opened.front());
  }
  static std::vector<std::unique_ptr<Port>> open_all(const std::string& device, std::uint32_t cores) {
    auto opened = open_dpdk({device, eal, cores});
    if (!opened) ADD_FAILURE() << opened.error().message;
    return opened ? std::move(*opened) : std::vector<std::unique_ptr<Port>>{};
  }
  static std::string why_not(const std::string& device, const std::vector<std::string>& arguments = eal,
                             std::uint32_t cores = 1) {
    const auto opened = open_dpdk({device, arguments, cores});
    return opened ? "it was opened" : opened.error().message;
  }
  // The kernel's end of net_tap is here, and a route leads to it as long as the device is there.
  static std::unique_ptr<Port> open_tap() {
    auto device = open(on_tap);
    // It has itself told of frames by signals, which interrupt others' system calls. They are left to DPDK's thread.
    sigset_t signals;
    sigemptyset(&signals);
    for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) sigaddset(&signals, signal);
    EXPECT_EQ(pthread_sigmask(SIG_BLOCK, &signals, nullptr), 0);
    EXPECT_TRUE(run("ip addr add 10.9.0.1/24 dev dtap0"));
    return device;
  }

  // Whether the kernel leaves the checksums of what it sends to the other end of the pair, as it does for a device of
  // its own kind.
  static void set_partial_checksums(bool on) {
    in_far([on] {
      const Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      ethtool_value value{ETHTOOL_STXCSUM, on};
      ifreq request{};
      std::memcpy(request.ifr_name, "far", sizeof "far");
      request.ifr_data = reinterpret_cast<char*>(&value);
      ASSERT_EQ(::ioctl(fd.get(), SIOCETHTOOL, &request), 0);
    });
  }
};

FrameToSend frame_to(const MacAddress& to, const MacAddress& from, Bytes payload) {
  FrameToSend frame{};
  write_ethernet_header({to, from, 0x88b5}, frame.header.data());  // for experiments
  frame.header_bytes = ethernet_header_bytes;
  frame.payload = {payload, Bytes()};
  return frame;
}

TEST_F(DpdkAndTheKernel, StreamsBothWaysOverAfPacket) {
  set_partial_checksums(false);
  for (const std::uint64_t bytes : {1ull, 1000ull, 1ull << 20, 16ull << 20})
    expect_served(open(on_veth), {}, 1, bytes, in_far);
  expect_served(open(on_veth), {}, 32, 100'000, in_far);
  expect_connected(open(on_veth), {}, 4, 1 << 20, in_far);
}

// The kernel would have a card complete them. DPDK's driver does not tell which these are, so they look like damage.
TEST_F(DpdkAndTheKernel, FramesWhoseChecksumNobodyCompletedAreDroppedAndCounted) {
  set_partial_checksums(true);
  Machine<MemoryOwner> machine(open(on_veth), {}, 1);
  ASSERT_TRUE(machine.stack->listen(IpFamily::v4, port, 1, 65'536));
  machine.run({[] {
    in_far([] {
      const Fd fd = tcp_socket();
      const timeval soon{0, 200'000};
      ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon);
      const sockaddr_storage to = address_of({self, port});
      EXPECT_NE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    });
  }});
  EXPECT_GT(machine.stack->counters().drops[static_cast<std::size_t>(Drop::bad_tcp_checksum)], 0u);
  EXPECT_EQ(machine.stack->counters().accepted, 0u);
}

// Checksums are the driver's there, of both directions.
TEST_F(DpdkAndTheKernel, StreamsBothWaysOverTap) {
  const auto here = [](const auto& what) { what(); };
  auto device = open_tap();
  ASSERT_NE(device, nullptr);
  EXPECT_TRUE(device->capabilities().checksum);
  expect_served(std::move(device), {}, 2, 16 << 20, here);
  expect_connected(open_tap(), {}, 4, 1 << 20, here);
}

// The kernel takes tags off, and the driver says that there was one.
TEST_F(DpdkAndTheKernel, FramesOfAnotherVlanAreNotTaken) {
  auto device = open(on_veth);
  ASSERT_NE(device, nullptr);
  const auto send = [&](const auto& after_addresses) {
    in_far([&] { send_raw_frame(device->capabilities().mac, after_addresses); });
  };
  const std::uint64_t before = device->counters().dropped_in;
  send(of_vlan_5);
  EXPECT_FALSE(receives(*device, is_experiment, false));
  EXPECT_EQ(device->counters().dropped_in, before + 1);
  send(untagged);
  EXPECT_TRUE(receives(*device, is_experiment));
}

TEST_F(DpdkAndTheKernel, WhatADeviceDoesNotTakeIsLostAfterAWhile) {
  auto device = open_tap();
  ASSERT_NE(device, nullptr);
  std::vector<std::byte> payload(100);
  const FrameToSend frame = frame_to({2, 0, 0, 0, 0, 1}, device->capabilities().mac, payload);
  ASSERT_EQ(device->transmit({&frame, 1}, second_ns), 1u);
  ASSERT_TRUE(run("ip link set dtap0 down"));
  EXPECT_FALSE(device->link_up());
  ASSERT_EQ(device->transmit({&frame, 1}, 2 * second_ns), 0u);
  EXPECT_EQ(device->transmit({&frame, 1}, 3 * second_ns), 1u);
  EXPECT_EQ(device->counters().dropped_out, 1u);
  EXPECT_EQ(device->counters().frames_out, 1u);
  ASSERT_TRUE(run("ip link set dtap0 up"));
  EXPECT_EQ(device->transmit({&frame, 1}, 4 * second_ns), 1u);
  EXPECT_EQ(device->counters().frames_out, 2u);
  EXPECT_TRUE(device->link_up());
}

// Without a descriptor it is asked again: soon after a frame, later and later, never not at all.
TEST_F(DpdkAndTheKernel, ADeviceThatWakesNobodyIsDueAgain) {
  auto device = open(on_veth);
  ASSERT_NE(device, nullptr);
  EXPECT_EQ(device->wait_descriptor(), -1);
  std::array<ReceivedFrame, 64> frames;
  while (device->receive(frames, second_ns) > 0) {
  }
  std::vector<std::byte> payload(100);
  const FrameToSend frame = frame_to({2, 0, 0, 0, 0, 1}, device->capabilities().mac, payload);
  ASSERT_EQ(device->transmit({&frame, 1}, second_ns), 1u);
  TimeNs last = 0;
  for (const TimeNs quiet : {TimeNs(0), millisecond_ns, 4 * millisecond_ns, 100 * second_ns}) {
    const TimeNs now = second_ns + quiet;
    static_cast<void>(device->receive(frames, now));
    EXPECT_GT(device->next_due() - now, last);
    last = device->next_due() - now;
  }
  EXPECT_LE(last, millisecond_ns);
  device->close();
  EXPECT_EQ(device->next_due(), never);
}

TEST_F(DpdkAndTheKernel, WhatCannotBeOpenedSaysWhy) {
  EXPECT_NE(why_not("").find("does not name a device"), std::string::npos);
  EXPECT_NE(why_not("net_nonesuch0").find("net_nonesuch0"), std::string::npos);
  EXPECT_NE(why_not("net_af_packet7,iface=nonesuch0").find("No such device"), std::string::npos);
  EXPECT_NE(why_not("0000:03:00.0").find("0000:03:00.0"), std::string::npos);
  EXPECT_NE(
      why_not(on_veth, {"-m", "99"})
          .find("initializes once per process and did so with '--no-huge -m 64 --no-pci'; this device needs '-m 99'"),
      std::string::npos);
  EXPECT_NE(why_not(on_veth, {"--help"}).find("--help"), std::string::npos);
  EXPECT_NE(why_not(on_veth, eal, 2).find("it has 1 queue, and tcp.cores = 2 takes one for each core"),
            std::string::npos);
  const auto device = open(on_veth);
  EXPECT_NE(why_not(on_veth).find("has opened the device already"), std::string::npos);
}

// The device spreads flows over both queues by a hash of its own; whichever it is, each frame reaches its flow's core.
TEST_F(DpdkAndTheKernel, FlowsOfTwoCoresComeByTwoQueuesAndReachTheirCores) {
  constexpr std::uint32_t cores = 2;
  constexpr std::size_t flows = 200;
  const auto ports = open_all("net_af_packet0,iface=near,qpairs=2", cores);
  ASSERT_EQ(ports.size(), cores);
  const MacAddress mac = ports[0]->capabilities().mac;
  in_far([&] {
    const RawSender sender;
    for (std::size_t i = 0; i < flows; ++i) {
      Segment segment;
      segment.key = {{kernel, static_cast<std::uint16_t>(20'000 + i)}, {self, port}};
      segment.flags = flag::ack;
      const FrameToSend frame = segment_frame(segment, mac, {2, 0, 0, 0, 0, 1}, {}, {});
      sender.send({frame.header.begin(), frame.header.begin() + frame.header_bytes});
    }
  });
  std::array<std::size_t, cores> received{};
  const auto look = [&](std::size_t core) {
    std::array<ReceivedFrame, 64> frames;
    for (const TimeNs end = monotonic_ns() + 200 * millisecond_ns; monotonic_ns() < end;) {
      const std::size_t count = ports[core]->receive(frames, monotonic_ns());
      for (std::size_t i = 0; i < count; ++i) {
        const Bytes bytes = frames[i].bytes;
        if (read_ethernet_header(bytes.data()).type != ethertype_ipv4) continue;
        const std::uint16_t from = load_be16(&bytes[ethernet_header_bytes + ipv4_header_bytes]);
        if (from < 20'000 || from >= 20'000 + flows) continue;
        EXPECT_EQ(wire::core_of_flow(kernel, from, self, port, cores), core) << from;
        ++received[core];
      }
    }
  };
  // While nobody looks at the other queue, all that a core gets has come by its own.
  look(0);
  const std::size_t of_queue_0 = received[0];
  look(1);  // its own and those that core 0 has found
  look(0);  // those that core 1 has found
  EXPECT_GT(of_queue_0, 0u);
  EXPECT_GT(received[0], of_queue_0);
  EXPECT_EQ(received[0] + received[1], flows);
  EXPECT_GT(received[1], flows / 4);
}

// A core that sleeps is woken for a frame that arrived at another one's queue.
TEST_F(DpdkAndTheKernel, ACoreIsWokenForAFrameThatAnotherOneFinds) {
  constexpr std::uint32_t cores = 2;
  const auto ports = open_all("net_af_packet0,iface=near,qpairs=2", cores);
  ASSERT_EQ(ports.size(), cores);
  std::array<ReceivedFrame, 64> frames;
  const auto is_woken = [&](const Port& which, int milliseconds) {
    pollfd descriptor{which.wait_descriptor(), POLLIN, 0};
    return ::poll(&descriptor, 1, milliseconds) == 1;
  };
  const MacAddress mac = ports[0]->capabilities().mac;
  std::size_t handed = 0;
  for (std::uint16_t from = 20'000; from < 20'200 && handed < 3; ++from) {
    Segment segment;
    segment.key = {{kernel, from}, {self, port}};
    segment.flags = flag::ack;
    const std::uint32_t core = wire::core_of_flow(kernel, from, self, port, cores);
    const FrameToSend frame = segment_frame(segment, mac, {2, 0, 0, 0, 0, 1}, {}, {});
    for (const auto& each : ports)
      while (each->receive(frames, monotonic_ns()) > 0) {
      }
    if (!ports[core]->fall_asleep(monotonic_ns())) continue;
    EXPECT_FALSE(is_woken(*ports[core], 0));
    in_far([&] { RawSender().send({frame.header.begin(), frame.header.begin() + frame.header_bytes}); });
    for (const TimeNs end = monotonic_ns() + 20 * millisecond_ns; monotonic_ns() < end;)
      static_cast<void>(ports[1 - core]->receive(frames, monotonic_ns()));
    if (!is_woken(*ports[core], 0)) continue;  // it came by its own queue, which wakes nobody
    ++handed;
    EXPECT_EQ(ports[core]->receive(frames, monotonic_ns()), 1u);
    EXPECT_FALSE(is_woken(*ports[core], 0));
  }
  EXPECT_EQ(handed, 3u);
}

// Two cores of a device with two queues, and a flow of each that arrives at the other one's queue.
class DpdkCores : public DpdkAndTheKernel {
 protected:
  static constexpr std::uint32_t cores = 2;
  void SetUp() override {
    DpdkAndTheKernel::SetUp();
    if (IsSkipped()) return;
    ports = open_all("net_af_packet0,iface=near,qpairs=2", cores);
    ASSERT_EQ(ports.size(), cores);
    for (std::uint32_t core = 0; core < cores; ++core) ASSERT_TRUE(find_flow(core)) << core;
  }
  // Of the flow of `core`, at the other one's queue when it returns.
  void send(std::uint32_t core, std::size_t count = 1) {
    in_far([&] {
      const RawSender sender;
      for (std::size_t i = 0; i < count; ++i) sender.send(flows[core]);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::size_t receive(std::uint32_t core, TimeNs now) {
    std::array<ReceivedFrame, 64> frames;
    const std::size_t count = ports[core]->receive(frames, now);
    return static_cast<std::size_t>(std::count_if(frames.begin(), frames.begin() + count, [&](const auto& frame) {
      return std::ranges::equal(frame.bytes, flows[core]);
    }));
  }
  void drain() {
    std::array<ReceivedFrame, 64> frames;
    for (int rounds = 0; rounds < 100; ++rounds)
      for (const auto& port : ports) static_cast<void>(port->receive(frames, 1));
  }

  std::vector<std::unique_ptr<Port>> ports;
  std::array<std::vector<std::byte>, cores> flows;

 private:
  bool find_flow(std::uint32_t core) {
    for (std::uint16_t from = 20'000; from < 20'200; ++from) {
      if (wire::core_of_flow(kernel, from, self, port, cores) != core) continue;
      Segment segment;
      segment.key = {{kernel, from}, {self, port}};
      segment.flags = flag::ack;
      const FrameToSend frame = segment_frame(segment, ports[0]->capabilities().mac, {2, 0, 0, 0, 0, 1}, {}, {});
      flows[core] = {frame.header.begin(), frame.header.begin() + frame.header_bytes};
      drain();
      send(core);
      if (receive(core, 1) == 0 && receive(1 - core, 1) == 0 && receive(core, 1) == 1) return true;
    }
    return false;
  }
};

// The device may have more behind them, and a polled one is looked at again soon.
TEST_F(DpdkCores, FramesOfAnotherCoreAreWorkOfTheOneThatFindsThem) {
  drain();
  ASSERT_TRUE(ports[0]->fall_asleep(second_ns));
  send(1);
  EXPECT_FALSE(ports[0]->fall_asleep(second_ns));
  EXPECT_EQ(receive(1, second_ns), 1u);
  const auto next_look = [&](TimeNs now) {
    static_cast<void>(receive(0, now));
    return ports[0]->next_due() - now;
  };
  const TimeNs idle = next_look(100 * second_ns);
  send(1);
  EXPECT_LT(next_look(200 * second_ns), idle);
  EXPECT_EQ(receive(1, 200 * second_ns), 1u);
}

TEST_F(DpdkCores, OneLookHandsOverMoreThanABurst) {
  drain();
  send(1, 150);
  EXPECT_EQ(receive(0, second_ns), 0u);
  std::size_t received = 0;
  for (int rounds = 0; rounds < 3; ++rounds) received += receive(1, second_ns);
  EXPECT_EQ(received, 150u);
}

TEST_F(DpdkCores, WithAFullInboxACoreLooksAtItsQueueAsWell) {
  drain();
  send(1, 150);
  EXPECT_EQ(receive(0, second_ns), 0u);
  send(0);
  EXPECT_GT(receive(1, second_ns), 32u);
  EXPECT_EQ(receive(0, second_ns), 1u);
}

// A network card in software and the driver of one, in one process: they have interrupts and offloads as cards do. They
// stay open until the process has ended: DPDK's thread may still be in a handler of net_virtio_user's when that is
// closed, which 22.11 does not wait for.
struct CardAndDriver {
  std::unique_ptr<Port> card, driver;
};

class DpdkCards : public DpdkAndTheKernel {
 protected:
  void SetUp() override {
    DpdkAndTheKernel::SetUp();
    if (IsSkipped()) return;
    static const CardAndDriver& both = *new CardAndDriver(make());
    ASSERT_TRUE(both.card && both.driver && both.card->link_up());
    card = both.card.get(), driver = both.driver.get();
    while (card->receive(frames, 0) > 0 || driver->receive(frames, 0) > 0) {
    }
  }
  Port *card = nullptr, *driver = nullptr;
  std::array<ReceivedFrame, 64> frames;

 private:
  static CardAndDriver make() {
    const auto socket = std::filesystem::temp_directory_path() / fmt::format("offpath-vhost-{}", ::getpid());
    std::filesystem::remove(socket);
    CardAndDriver made{open("net_vhost0,tso=1,iface=" + socket.string()),
                       open("net_virtio_user0,path=" + socket.string())};
    for (const TimeNs end = monotonic_ns() + 10 * second_ns;
         made.card && !made.card->link_up() && monotonic_ns() < end;) {
    }
    std::filesystem::remove(socket);
    return made;
  }
};

// Its descriptor tells of a frame, but only if the device was told that somebody sleeps.
TEST_F(DpdkCards, WakeWhoSleeps) {
  ASSERT_GE(driver->wait_descriptor(), 0);
  EXPECT_EQ(driver->next_due(), never);
  const auto is_woken = [&](int milliseconds) {
    pollfd descriptor{driver->wait_descriptor(), POLLIN, 0};
    return ::poll(&descriptor, 1, milliseconds) == 1;
  };
  std::vector<std::byte> payload(100);
  const FrameToSend frame = frame_to(driver->capabilities().mac, card->capabilities().mac, payload);
  for (int i = 0; i < 3; ++i) {
    while (driver->receive(frames, 1) > 0) {
    }
    ASSERT_TRUE(driver->fall_asleep(2));
    EXPECT_FALSE(is_woken(20));
    ASSERT_EQ(card->transmit({&frame, 1}, 3), 1u);
    EXPECT_TRUE(is_woken(10'000));
    EXPECT_EQ(driver->receive(frames, 4), 1u);
    // One that came before: it cannot sleep, and loses nothing by having tried.
    ASSERT_EQ(card->transmit({&frame, 1}, 5), 1u);
    EXPECT_FALSE(driver->fall_asleep(6));
    EXPECT_FALSE(driver->fall_asleep(6));
    ASSERT_EQ(driver->receive(frames, 7), 1u);
    EXPECT_TRUE(std::ranges::equal(frames[0].bytes.subspan(ethernet_header_bytes), payload));
  }
}

// A super-segment crosses in pieces, and its reader gets the whole; its payload was copied before transmit
// returned.
TEST_F(DpdkCards, TakeFramesThatAreToBeCut) {
  ASSERT_TRUE(driver->capabilities().checksum);
  ASSERT_GT(driver->capabilities().segmentation_bytes, 32'768u);
  std::vector<std::byte> said(40'000);
  for (std::size_t i = 0; i < said.size(); ++i) said[i] = stream_byte(4, i);
  const std::vector<std::byte> kept = said;
  Segment segment;
  segment.key = {{ipv4(0x0a000001), 1000}, {ipv4(0x0a000002), 2000}};
  segment.flags = flag::ack;
  FrameToSend frame = segment_frame(segment, card->capabilities().mac, driver->capabilities().mac,
                                    Bytes(said).first(12'345), Bytes(said).subspan(12'345));
  frame.segment_bytes = 1448;
  ASSERT_EQ(driver->transmit({&frame, 1}, 1), 1u);
  std::ranges::fill(said, std::byte{0});
  EXPECT_TRUE(receives(*card, [&](const ReceivedFrame& arrived) {
    IpPacket packet;
    Segment read;
    EXPECT_TRUE(arrived.checksum_verified);
    return read_ipv4(arrived.bytes.subspan(ethernet_header_bytes), packet) == Drop::none &&
           read_segment(packet, true, read) == Drop::none && std::ranges::equal(read.payload, kept);
  }));
  EXPECT_EQ(driver->counters().frames_out, 1u);
}

}  // namespace
}  // namespace offpath::kernel_test
