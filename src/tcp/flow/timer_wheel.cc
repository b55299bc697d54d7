#include "tcp/flow/timer_wheel.h"

#include <bit>

#include "base/status.h"

namespace offpath::tcp {
namespace {

constexpr std::uint64_t tick_of(TimeNs due) noexcept {
  return due <= 0 ? 0 : (static_cast<std::uint64_t>(due) + TimerWheel::tick_ns - 1) / TimerWheel::tick_ns;
}

constexpr std::uint64_t last_tick = (std::uint64_t{1} << 48) - 1;  // of the wheels, from where they are

}  // namespace

TimerWheel::TimerWheel(TimeNs now) noexcept : current_(static_cast<std::uint64_t>(std::max<TimeNs>(now, 0)) / tick_ns) {
  for (auto& level : heads_) level.fill(nobody);
}

// The level is that of the highest digit in which the tick differs from the current one. So each used slot of a level
// lies behind the current digit, and time cannot pass it without emptying it.
TimerWheel::Place TimerWheel::place_of(std::uint64_t tick) const noexcept {
  const std::uint64_t differs = tick ^ current_;
  const unsigned level = differs == 0 ? 0 : (63 - static_cast<unsigned>(std::countl_zero(differs))) / slot_bits;
  static_assert(1ull << (levels * slot_bits) == last_tick + 1);
  OFP_ASSERT(level < levels);
  return {level, tick >> (level * slot_bits) & (slots - 1)};
}

void TimerWheel::link(std::uint32_t timer) noexcept {
  Node& node = nodes_[timer];
  const Place place = place_of(node.tick);
  std::uint32_t& head = heads_[place.level][place.slot];
  node.previous = nobody;
  node.next = head;
  if (head != nobody) nodes_[head].previous = timer;
  head = timer;
  taken_[place.level] |= 1ull << place.slot;
}

void TimerWheel::unlink(std::uint32_t timer) noexcept {
  Node& node = nodes_[timer];
  if (node.next != nobody) nodes_[node.next].previous = node.previous;
  if (node.previous != nobody) {
    nodes_[node.previous].next = node.next;
  } else {
    const Place place = place_of(node.tick);
    heads_[place.level][place.slot] = node.next;
    if (node.next == nobody) taken_[place.level] &= ~(1ull << place.slot);
  }
}

void TimerWheel::set(std::uint32_t timer, TimeNs due) {
  if (timer >= nodes_.size()) nodes_.resize(timer + 1);
  cancel(timer);
  if (due == never) return;
  // Beyond the range of the wheels (centuries) a timer fires early.
  nodes_[timer].tick = std::clamp(tick_of(due), current_, current_ | last_tick);
  link(timer);
}

void TimerWheel::cancel(std::uint32_t timer) noexcept {
  if (timer >= nodes_.size() || nodes_[timer].tick == unset) return;
  unlink(timer);
  nodes_[timer].tick = unset;
}

TimeNs TimerWheel::due(std::uint32_t timer) const noexcept {
  if (timer >= nodes_.size() || nodes_[timer].tick == unset) return never;
  return static_cast<TimeNs>(nodes_[timer].tick) * tick_ns;
}

bool TimerWheel::first_slot(Place& place, std::uint64_t& tick) const noexcept {
  for (unsigned level = 0; level < levels; ++level) {
    if (taken_[level] == 0) continue;
    place = {level, static_cast<std::uint64_t>(std::countr_zero(taken_[level]))};
    const std::uint64_t above = ~((1ull << ((level + 1) * slot_bits)) - 1);
    tick = (current_ & above) | place.slot << (level * slot_bits);
    return true;
  }
  return false;
}

TimeNs TimerWheel::next_due() const noexcept {
  Place place{};
  std::uint64_t tick = 0;
  return first_slot(place, tick) ? static_cast<TimeNs>(tick) * tick_ns : never;
}

std::uint32_t TimerWheel::fire(TimeNs now) {
  const std::uint64_t until = static_cast<std::uint64_t>(std::max<TimeNs>(now, 0)) / tick_ns;
  Place place{};
  std::uint64_t tick = 0;
  while (first_slot(place, tick) && tick <= until) {
    current_ = std::max(current_, tick);
    std::uint32_t timer = heads_[place.level][place.slot];
    if (place.level == 0) {
      unlink(timer);
      nodes_[timer].tick = unset;
      return timer;
    }
    heads_[place.level][place.slot] = nobody;
    taken_[place.level] &= ~(1ull << place.slot);
    while (timer != nobody) {
      const std::uint32_t next = nodes_[timer].next;
      link(timer);
      timer = next;
    }
  }
  current_ = std::max(current_, until);
  return nobody;
}

}  // namespace offpath::tcp
