// A stack on a device, polled as a loop polls it, with Linux's own TCP as its peer: streams both ways, of bytes derived
// from their positions.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <list>
#include <utility>

#include "kernel_peer.h"

namespace offpath::kernel_test {

using namespace tcp;

inline const IpAddress self = test_address(0x0a090002), kernel = test_address(0x0a090001);  // 10.9.0.2, 10.9.0.1
constexpr std::uint16_t port = 7000;

template <class AnyOwner>
struct Machine {
  std::unique_ptr<Port> device;
  std::unique_ptr<ImpairedPort> impaired;
  std::unique_ptr<const CongestionControl> congestion = congestion_control("cubic").value();
  AnyOwner owner;
  std::unique_ptr<Stack> stack;
  std::unique_ptr<Station> station;

  Machine(std::unique_ptr<Port> opened, const Impairments& bad, std::uint64_t seed) : device(std::move(opened)) {
    impaired = std::make_unique<ImpairedPort>(*device, bad, bad, seed);
    const bool good = bad.loss == 0 && bad.bytes_per_second == 0;
    Port& used = good ? static_cast<Port&>(*device) : *impaired;
    StackOptions options;
    set_test_address(options, 0x0a090002);
    options.secret = {seed, 99};
    options.time_wait_ns = second_ns;
    stack = std::make_unique<Stack>(options, used.capabilities(), *congestion, owner, monotonic_ns());
    station = std::make_unique<Station>(used, *stack, [this](TimeNs now) { owner.act(*stack, now); });
  }
  // Polls until all `peers` are done.
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

inline void expect_whole(const std::vector<Exchanged>& results, const MemoryOwner& owner, std::uint64_t bytes) {
  for (const Exchanged& result : results) {
    EXPECT_TRUE(result.whole);
    EXPECT_EQ(result.received, bytes);
    EXPECT_EQ(result.wrong, 0u);
  }
  for (const auto& [tag, flow] : owner.flows) {
    EXPECT_EQ(flow.read, bytes);
    EXPECT_EQ(flow.wrong, 0u);
    EXPECT_EQ(flow.error, FlowError::none);
  }
}

struct Served {
  StackCounters stack;
  PortCounters port;  // with the bad network behind it
};

// The kernel's clients connect; each stream's bytes are their own.
template <class InPeer>
Served expect_served(std::unique_ptr<Port> device, const Impairments& bad, std::size_t clients, std::uint64_t bytes,
                     InPeer in_peer, std::uint32_t buffer_bytes = 256 << 10) {
  if (device == nullptr) return ADD_FAILURE() << "there is no device", Served{};
  Machine<MemoryOwner> machine(std::move(device), bad, 5);
  machine.owner.plan = {bytes, buffer_bytes};
  EXPECT_TRUE(machine.stack->listen(test_family(), port, 1, buffer_bytes));
  std::vector<Exchanged> results(clients);
  std::list<std::function<void()>> peers;
  for (std::size_t i = 0; i < clients; ++i)
    peers.push_back([&, i] {
      in_peer([&] {
        const Fd fd = tcp_socket();
        const auto local = static_cast<std::uint16_t>(20'000 + i);
        const sockaddr_storage from = address_of({kernel, local}), to = address_of({self, port});
        if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from) != 0) return;
        if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return;
        results[i] = exchange(fd.get(), 2u * local, bytes, 2u * local + 1);
      });
    });
  machine.run(std::move(peers));
  EXPECT_EQ(machine.owner.flows.size(), clients);
  expect_whole(results, machine.owner, bytes);
  return {machine.stack->counters(), machine.impaired->counters()};
}

// It connects to the kernel's servers.
template <class InPeer>
void expect_connected(std::unique_ptr<Port> device, const Impairments& bad, std::size_t count, std::uint64_t bytes,
                      InPeer in_peer) {
  ASSERT_NE(device, nullptr);
  Machine<MemoryOwner> machine(std::move(device), bad, 6);
  std::vector<Exchanged> results(count);
  Fd listening;
  in_peer([&] {
    listening = tcp_socket();
    const sockaddr_storage at = address_of({kernel, port});
    ASSERT_EQ(::bind(listening.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    ASSERT_EQ(::listen(listening.get(), 64), 0);
  });
  std::list<std::function<void()>> peers;
  for (std::size_t i = 0; i < count; ++i)
    peers.push_back([&, i] {
      sockaddr_in6 from{};
      socklen_t size = sizeof from;
      const Fd fd(::accept(listening.get(), reinterpret_cast<sockaddr*>(&from), &size));
      const std::uint64_t name = ntohs(from.sin6_port);
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
  expect_whole(results, machine.owner, bytes);
}

}  // namespace offpath::kernel_test
