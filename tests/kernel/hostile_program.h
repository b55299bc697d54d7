// A program that opens connections normally and then misbehaves: it writes arbitrary bytes into the memory that it
// shares with the agent, sends the agent unsolicited datagrams and descriptors, and plays with the cores' doorbells.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <random>

#include "base/sent_fds.h"
#include "connections/sockets.h"
#include "wire/areas/tcp_area.h"

namespace offpath::kernel_test {

class HostileProgram {
 public:
  // `flows`: as many as the connections were opened for.
  HostileProgram(std::uint32_t flows, std::uint64_t seed) : random_(seed) { layout_.flows = flows; }

  // Until the agent has ended its connections, or `rounds` are over. True: it was ended.
  bool attack(channel::Sockets& sockets, std::size_t rounds) {
    const off_t bytes = lseek(sockets.memory_fd(), 0, SEEK_END);
    void* const mapped =
        mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, sockets.memory_fd(), 0);
    if (mapped == MAP_FAILED) return false;
    const MutableBytes memory(static_cast<std::byte*>(mapped), static_cast<std::size_t>(bytes));
    cores_ = sockets.area().cores();
    bool ended = false;
    for (std::size_t round = 0; round < rounds && !ended; ++round) {
      const std::uint64_t what = below(200);
      if (what == 0)
        say(sockets.wake_fd());
      else if (what == 1 && round > rounds / 4)
        put(memory, below(layout_.own() / 8) * 8, anything());
      else if (what == 2 && round > rounds / 2)
        put(memory, below(wire::tcp_word::process_lines / 8) * 8, anything());
      else
        give_command(memory);
      const auto woken = static_cast<std::uint8_t>(below(256));
      if (round % 64 == 0) {
        static_cast<void>(send(sockets.wake_fd(), &woken, sizeof woken, MSG_DONTWAIT | MSG_NOSIGNAL));
        for (const Fd& doorbell : sockets.doorbells()) ring(doorbell.get());
      }
      pollfd end{sockets.wake_fd(), 0, 0};
      ended = poll(&end, 1, 0) == 1 && (end.revents & POLLHUP) != 0;
    }
    munmap(mapped, memory.size());
    return ended;
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  std::uint64_t anything() {
    constexpr std::array<std::uint64_t, 7> edges = {0, 1, 63, 4096, 1ull << 32, 1ull << 63, ~0ull};
    return below(2) == 0 ? edges[below(edges.size())] : random_() >> below(64);
  }
  static void put(MutableBytes memory, std::uint64_t at, std::uint64_t value) {
    std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(memory.data() + at))
        .store(value, std::memory_order_release);
  }

  // Writes a complete command into the next slot of one of its rings, for an own or another handle, mostly to the right
  // core.
  void give_command(MutableBytes memory) {
    const auto core = static_cast<std::uint32_t>(below(cores_));
    const auto words = std::atomic_ref<std::uint64_t>(
        *reinterpret_cast<std::uint64_t*>(memory.data() + wire::tcp_word::of_core(core) + wire::tcp_word::commands));
    const std::uint64_t next = words.load();
    wire::TcpCommand made{};
    made.kind = static_cast<wire::TcpCommandKind>(1 + below(below(100) == 0 ? 20 : 12));
    made.handle = static_cast<std::uint32_t>(below(200) == 0 ? anything() : below(layout_.flows));
    if (below(500) != 0) made.handle = made.handle / cores_ * cores_ + core;
    const bool of_port = made.kind == wire::TcpCommandKind::listen || made.kind == wire::TcpCommandKind::bind;
    if (core != 0 && of_port && below(100) != 0) made.kind = wire::TcpCommandKind::accept_slot;
    made.listener = static_cast<std::uint32_t>(below(8));
    made.port = static_cast<std::uint16_t>(below(4) == 0 ? 7000 : 20'000 + below(1000));  // another's, sometimes
    made.send_bytes = made.receive_bytes = below(100) == 0 ? static_cast<std::uint32_t>(anything()) : 65'536;
    made.send_at = below(100) == 0 ? anything() : layout_.own() + below(16) * 65'536;
    made.receive_at = below(100) == 0 ? anything() : layout_.own() + below(16) * 65'536;
    made.position = below(4) == 0 ? anything() : below(65'536);
    made.flags = static_cast<std::uint16_t>(below(100) == 0 ? anything() : anything() | wire::tcp_families);
    if (made.kind == wire::TcpCommandKind::connect) {
      auto connects = std::bit_cast<wire::TcpConnect>(made);
      connects.remote_address = wire::ipv4(static_cast<std::uint32_t>(below(2) == 0 ? 0x0a090001 : anything()));
      if (below(4) == 0) connects.remote_address.bytes[below(12)] = static_cast<std::uint8_t>(anything());
      connects.remote_port = static_cast<std::uint16_t>(anything());
      made = std::bit_cast<wire::TcpCommand>(connects);
    }
    std::memcpy(memory.data() + wire::TcpAreaLayout::commands + layout_.of_core(core) +
                    next % layout_.command_slots * wire::TcpAreaLayout::slot_bytes,
                &made, sizeof made);
    words.store(next + 1);
  }

  // Rings a doorbell, fills it, or empties it.
  void ring(int doorbell) {
    std::uint64_t count = below(4) == 0 ? ~0ull - 1 : 1;
    if (below(3) == 0)
      static_cast<void>(read(doorbell, &count, sizeof count));
    else
      static_cast<void>(write(doorbell, &count, sizeof count));
  }

  // Sends an invalid wake: bytes, or a joining process with descriptors that are not sockets, or not its own.
  void say(int wake) {
    wire::TcpJoin join{below(4) == 0 ? static_cast<std::uint32_t>(anything()) : wire::TcpJoin::join,
                       static_cast<std::uint32_t>(below(2) == 0 ? anything() : below(4))};
    const std::size_t length = below(4) == 0 ? below(sizeof join + 1) : sizeof join;
    std::array<int, 2> ends{-1, -1};
    const bool sockets = below(2) == 0;
    const bool made = sockets ? socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0
                              : pipe2(ends.data(), O_CLOEXEC) == 0;
    const iovec piece{&join, length};
    const std::size_t sent = !made || below(3) == 0 ? 0 : ends.size();
    static_cast<void>(send_with_descriptors(wake, {&piece, 1}, std::span(ends).first(sent), MSG_DONTWAIT));
    for (const int end : ends)
      if (end >= 0) close(end);
  }

  std::mt19937_64 random_;
  wire::TcpAreaLayout layout_{};
  std::uint32_t cores_ = 1;
};

}  // namespace offpath::kernel_test
