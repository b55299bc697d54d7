// Timers of very many flows: a hierarchy of wheels. Setting and cancelling take constant time, and unset timers cost
// nothing. Reads no clock.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace offpath::tcp {

// Each timer has a number, small and given by the owner: an index of its own table. A fired timer is not set any more.
class TimerWheel {
 public:
  static constexpr TimeNs tick_ns = 1 << 14;  // 16 us: a timer fires at its time or up to that much later

  explicit TimerWheel(TimeNs now) noexcept;

  void set(std::uint32_t timer, TimeNs due);
  void cancel(std::uint32_t timer) noexcept;
  [[nodiscard]] TimeNs due(std::uint32_t timer) const noexcept;  // `never` if it is not set
  // Not after the earliest timer. It may be before it; firing then only sorts.
  [[nodiscard]] TimeNs next_due() const noexcept;

  // The earliest timer that is due, or `nobody`; call it until it returns that.
  static constexpr std::uint32_t nobody = ~0u;
  [[nodiscard]] std::uint32_t fire(TimeNs now);

 private:
  static constexpr unsigned slot_bits = 6, levels = 8;
  static constexpr std::uint64_t slots = 1 << slot_bits;

  struct Node {
    std::uint64_t tick = unset;
    std::uint32_t previous = nobody, next = nobody;
  };
  static constexpr std::uint64_t unset = ~0ull;
  struct Place {
    unsigned level;
    std::uint64_t slot;
  };
  [[nodiscard]] Place place_of(std::uint64_t tick) const noexcept;
  void link(std::uint32_t timer) noexcept;
  void unlink(std::uint32_t timer) noexcept;
  // The first used slot: its level, its slot, and its first tick. False: all are empty.
  [[nodiscard]] bool first_slot(Place& place, std::uint64_t& tick) const noexcept;

  std::uint64_t current_;  // no timer is before it
  std::vector<Node> nodes_;
  std::array<std::array<std::uint32_t, slots>, levels> heads_;
  std::array<std::uint64_t, levels> taken_{};  // a bit for each slot

 public:
  static constexpr std::size_t bytes_per_timer = sizeof(Node);
};

}  // namespace offpath::tcp
