// The agent's view of a program's area (wire/areas/tcp_area.h): commands (TcpCommand) are copied out once and checked,
// events (TcpEvent) are written, and neither side sleeps while the other has something for it. Needs the memory mapped.
//
// Both sides sleep by base/sleep_flag.h. A flag of 2 instead of 1 says that the sleeper also waits for room in the ring
// that it writes to. Threads of the program that wait for one flow sleep on a word of it instead; the agent wakes them
// itself, so no other thread of the program has to run first.
//
// Read this first in src/tcp/area, then ring_blocks.h, and for programs on other machines area_mirror.h and
// look_timing.h.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/sleep_flag.h"
#include "base/status.h"
#include "connections/sleep_word.h"
#include "tcp/segment/address.h"
#include "wire/areas/tcp_area.h"

namespace offpath::tcp {

class ProgramArea {
 public:
  // Uses the rings of this core of the agent.
  explicit ProgramArea(const wire::TcpAreaLayout& layout, std::uint32_t core = 0) noexcept
      : layout_(layout), core_(core) {}

  // To be called whenever the channel is polled: the memory may be withdrawn, or mapped anew elsewhere with the same
  // bytes. Returns false if there is none.
  [[nodiscard]] bool attach(MutableBytes memory) noexcept;
  [[nodiscard]] MutableBytes memory() const noexcept { return memory_; }
  [[nodiscard]] const wire::TcpAreaLayout& layout() const noexcept { return layout_; }

  // Core 0 writes the agent's parameters before the program may use the area.
  // Bits: `congestions` of those that the program may choose, `congestions_of_all` of those that every program may.
  void introduce(std::uint32_t cores, const IpAddress& address4, const IpAddress& address6,
                 wire::TcpCongestion congestion = wire::TcpCongestion::cubic,
                 std::uint8_t congestions = wire::tcp_congestions_all,
                 std::uint8_t congestions_of_all = wire::tcp_congestions_all) noexcept;

  // Whether the program has no room for another command; a link's reserve is not counted.
  [[nodiscard]] bool commands_full() const noexcept {
    return word(own(wire::tcp_word::commands)) - commands_taken_ >= layout_.command_slots;
  }
  // True if a command was read. Its contents are not validated yet.
  [[nodiscard]] Result<bool> take(wire::TcpCommand& command);
  // The position up to which the program says that it has read the flow's bytes; any value is possible.
  [[nodiscard]] std::uint64_t read_position(std::uint32_t handle) const noexcept;
  // False if there is no room. `concerned`: bits of the processes to wake.
  [[nodiscard]] Result<bool> post(const wire::TcpEvent& event, std::uint64_t concerned);

  // After a round: the processes that sleep and have events, each once, and the handles on whose words threads sleep
  // until the events of their flow.
  template <class Wake, class WakeThreads>
  void take_sleepers(std::span<const std::uint32_t> processes, const Wake& wake,
                     const WakeThreads& wake_threads) noexcept {
    if (posted_for_ == 0 && !took_ && !full_) return;
    fence_before_look();
    for (const std::uint32_t process : processes)
      if (wants_wake(process)) wake(process);
    for (const std::uint32_t handle : told_)
      if (const auto taken = sleep_word(handle).take()) wake_threads(handle, *taken);
    told_.clear();
    posted_for_ = 0;
    took_ = full_ = false;
  }
  // Of threads that wait for a flow.
  [[nodiscard]] channel::SleepWord sleep_word(std::uint32_t handle) const noexcept {
    return channel::SleepWord(memory_.data() + layout_.sleep_word(handle));
  }
  // A wake that a process has begun and not ended: that process may be dead.
  [[nodiscard]] std::optional<channel::SleepWord::Taken> unfinished_wake(std::uint32_t handle) const noexcept {
    const channel::SleepWord word = sleep_word(handle);
    return word.is_waking() ? word.take() : std::nullopt;
  }
  // Returns false if there are commands, or, if `events_wait`, room for events.
  [[nodiscard]] bool fall_asleep(bool events_wait) noexcept;
  void wake_up() noexcept;

 private:
  [[nodiscard]] std::uint64_t word(std::uint64_t offset) const noexcept;
  void set_word(std::uint64_t offset, std::uint64_t value) noexcept;
  [[nodiscard]] std::uint64_t own(std::uint64_t offset) const noexcept {
    return wire::tcp_word::of_core(core_) + offset;
  }
  [[nodiscard]] SleepFlag flag(std::uint64_t offset) const noexcept { return SleepFlag(memory_.data() + offset); }
  [[nodiscard]] bool wants_wake(std::uint32_t process) noexcept;

  wire::TcpAreaLayout layout_;
  std::uint32_t core_;
  MutableBytes memory_;
  std::uint64_t commands_taken_ = 0, events_ = 0;
  std::uint64_t posted_for_ = 0;
  std::vector<std::uint32_t> told_;  // handles with events in this round for which processes are woken
  bool took_ = false, full_ = false, asleep_ = false;
};

}  // namespace offpath::tcp
