// The processes that share an area, stored in the area: which of them are alive, which handles each one holds, and
// which of these have changed since the process last looked. There are two bits for each process and handle; the
// meaning of a handle is not known here. All calls are under the area's lock, except has_changed() and was_told().
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "connections/area/area_rings.h"

namespace offpath::channel {

class ProcessTable {
 public:
  using Handle = std::uint32_t;

  // `changed` has a bit for every group of handles in which one has changed.
  struct alignas(64) Process {
    enum class Is : std::uint32_t { free, alive, leaving } is;
    std::uint32_t told;  // another process took in an event for this one
    std::uint64_t changed;
    AreaRings::KnownSleep slept;  // over a link: valid while the agent has not woken the process since
  };
  static_assert(sizeof(Process) == 64);

  [[nodiscard]] static constexpr std::uint64_t process_bytes(std::uint32_t flows) noexcept {
    return sizeof(Process) + align_up(16ull * words_of(flows), sizeof(Process));
  }

  // `memory` has room for tcp_processes_max processes. All numbers in use are below `count`.
  ProcessTable(std::byte* memory, std::uint32_t flows, std::uint32_t& count) noexcept
      : memory_(memory), flows_(flows), count_(&count) {}

  [[nodiscard]] std::uint32_t count() const noexcept { return *count_; }
  [[nodiscard]] Process& operator[](std::uint32_t number) const noexcept {
    return *reinterpret_cast<Process*>(memory_ + number * process_bytes(flows_));
  }
  // Adds a process. Error::no_space: the limit is reached.
  [[nodiscard]] Result<std::uint32_t> add() noexcept;
  // The process must not hold any handle.
  void remove(std::uint32_t number) noexcept;
  [[nodiscard]] bool is_any_alive() const noexcept;

  // ---- handles that a process holds
  [[nodiscard]] bool is_held(std::uint32_t number, Handle handle) const noexcept {
    return (held(number, handle) >> handle % 64 & 1) != 0;
  }
  void hold(std::uint32_t number, Handle handle) const noexcept { held(number, handle) |= bit(handle); }
  void let_go(std::uint32_t number, Handle handle) const noexcept { held(number, handle) &= ~bit(handle); }
  // Clears bits that processes left behind when they died.
  void let_all_go(Handle handle) const noexcept {
    for (std::uint32_t each = 0; each < count(); ++each) let_go(each, handle);
  }
  // Calls `visit` with each handle that the process holds; `visit` may let go of it.
  template <class Visit>
  void for_each_held(std::uint32_t number, const Visit& visit) const {
    for (Handle first = 0; first < flows_; first += 64)
      for (std::uint64_t left = held(number, first); left != 0; left &= left - 1)
        visit(first + static_cast<Handle>(std::countr_zero(left)));
  }

  // ---- handles that have changed
  // `by`: the process that took the change in.
  void set_changed(std::uint32_t number, Handle handle, std::uint32_t by) const noexcept;
  [[nodiscard]] std::optional<Handle> take_changed(std::uint32_t number) const noexcept;
  [[nodiscard]] bool has_changed(std::uint32_t number) const noexcept {
    return std::atomic_ref<std::uint64_t>((*this)[number].changed).load(std::memory_order_relaxed) != 0;
  }
  // True: another process has taken in events for this one since forget_told().
  [[nodiscard]] bool was_told(std::uint32_t number) const noexcept {
    return std::atomic_ref<std::uint32_t>((*this)[number].told).load(std::memory_order_relaxed) != 0;
  }
  void forget_told(std::uint32_t number) const noexcept {
    std::atomic_ref<std::uint32_t>((*this)[number].told).store(0, std::memory_order_relaxed);
  }

 private:
  [[nodiscard]] static constexpr std::uint32_t words_of(std::uint32_t flows) noexcept { return (flows + 63) / 64; }
  [[nodiscard]] static constexpr std::uint64_t bit(Handle handle) noexcept { return 1ull << handle % 64; }
  [[nodiscard]] std::uint64_t* bits(std::uint32_t number) const noexcept {
    return reinterpret_cast<std::uint64_t*>(reinterpret_cast<std::byte*>(&(*this)[number]) + sizeof(Process));
  }
  [[nodiscard]] std::uint64_t& held(std::uint32_t number, Handle handle) const noexcept {
    return bits(number)[handle / 64];
  }
  [[nodiscard]] std::uint64_t& changed(std::uint32_t number, Handle handle) const noexcept {
    return bits(number)[words_of(flows_) + handle / 64];
  }
  [[nodiscard]] std::uint32_t group_of_handles() const noexcept { return (words_of(flows_) + 63) / 64 * 64; }

  std::byte* memory_;
  std::uint32_t flows_;
  std::uint32_t* count_;
};

}  // namespace offpath::channel
