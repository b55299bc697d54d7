// A program's area behind a link that takes time, with the agent's copy of it (tcp/area/area_mirror.h). In real
// time, for programs whose threads wait; testing/tcp/linked_program.h is the same in virtual time.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <utility>

#include "link/link.h"
#include "link/local/sealed_memory.h"
#include "tcp/area/area_mirror.h"
#include "tcp/area/program_area.h"

namespace offpath::sockets {

class AreaLink {
 public:
  // Before the program uses its area.
  AreaLink(MutableBytes program, const wire::TcpAreaLayout& layout, wire::IpAddress address4, wire::IpAddress address6)
      : program_(program), copy_(link::allocate_sealed(layout.bytes).value()), mirror_(layout, copy_.bytes()) {
    tcp::ProgramArea area(layout);
    OFP_ASSERT(area.attach(program));
    area.introduce(1, address4, address6);
    reinterpret_cast<wire::TcpAgentLine*>(program.data() + wire::tcp_word::agent_line)->linked = 1;
  }

  [[nodiscard]] MutableBytes copy() noexcept { return copy_.bytes(); }
  // The program has woken the agent, or the agent wants to know.
  void look(TimeNs now) { mirror_.look(now); }
  void wake(std::uint32_t process) { mirror_.wake(process); }
  // Begins transfers and ends those that are due. Calls `wake` if processes of the program may have been woken.
  template <class Wake>
  void poll(TimeNs now, const Wake& wake) {
    mirror_.poll(now);
    for (bool more = true; more;) {
      for (tcp::AreaMirror::Transfer& each : mirror_.transfers())
        flights_.push_back({std::move(each), now + latency_ns});
      more = !flights_.empty() && flights_.front().ends_at <= now;
      if (!more) break;
      const tcp::AreaMirror::Transfer ended = std::move(flights_.front().transfer);
      flights_.pop_front();
      for (const tcp::AreaMirror::Piece& piece : ended.pieces) carry(piece, ended.writes);
      OFP_ASSERT(mirror_.done(ended.token, now));
      mirror_.poll(now);
    }
    if (mirror_.take_wake()) wake();
  }
  // How often a process was woken.
  [[nodiscard]] std::uint64_t woken(std::uint32_t process) const noexcept {
    auto& word = *reinterpret_cast<std::uint64_t*>(program_.data() + wire::tcp_word::process_woken(process));
    return std::atomic_ref<std::uint64_t>(word).load(std::memory_order_acquire);
  }
  // Both areas agree, as far as is known.
  [[nodiscard]] bool is_quiet() const noexcept { return flights_.empty() && mirror_.next_deadline() != 0; }
  [[nodiscard]] TimeNs next_deadline() const noexcept {
    return flights_.empty() ? mirror_.next_deadline() : std::min(flights_.front().ends_at, mirror_.next_deadline());
  }

 private:
  static constexpr TimeNs latency_ns = 20 * microsecond_ns;
  struct Flight {
    tcp::AreaMirror::Transfer transfer;
    TimeNs ends_at;
  };

  // As a device does: it obeys no lock, and a word is whole.
#if defined(__GNUC__)
  __attribute__((no_sanitize("thread")))
#endif
  void carry(const tcp::AreaMirror::Piece& piece, bool writes) const noexcept {
    std::byte* const theirs = program_.data() + piece.offset;
    const volatile std::byte* const from = writes ? piece.memory : theirs;
    volatile std::byte* const to = writes ? theirs : piece.memory;
    std::uint64_t at = 0;
    const auto aligned = [](const volatile std::byte* place) {
      return reinterpret_cast<std::uintptr_t>(place) % sizeof(std::uint64_t) == 0;
    };
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (aligned(from) && aligned(to))
      for (; at + sizeof(std::uint64_t) <= piece.length; at += sizeof(std::uint64_t)) {
        const auto word = *reinterpret_cast<const volatile std::uint64_t*>(from + at);
        *reinterpret_cast<volatile std::uint64_t*>(to + at) = word;
      }
    for (; at < piece.length; ++at) to[at] = from[at];
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }

  MutableBytes program_;
  link::SegmentMemory copy_;
  tcp::AreaMirror mirror_;
  std::deque<Flight> flights_;  // in the order of posting
};

}  // namespace offpath::sockets
