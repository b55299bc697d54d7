// The program's side of an area's rings, of each core: commands that it posts, and events that it takes
// (wire/areas/tcp_area.h). Connections are not known here. All calls are under the area's lock, except has_events() and
// tell_agent().
#pragma once

#include <array>
#include <functional>

#include "base/bytes.h"
#include "wire/areas/tcp_area.h"

namespace offpath::channel {

// The part that lies in the area, so that a process continues where another one stopped.
struct AreaRingsState {
  std::uint64_t posted;                                                   // number of commands to all cores
  std::array<std::uint64_t, wire::tcp_cores_max> commands, events_taken;  // by core
  std::uint32_t waits_for_room;                                           // bits of cores
  std::uint32_t processes;                                                // all numbers in use are below this
};

class AreaRings {
 public:
  using Wake = std::function<void(std::uint32_t core)>;
  using Handle = std::uint32_t;

  AreaRings(MutableBytes memory, const wire::TcpAreaLayout& layout, AreaRingsState& state, Wake wake)
      : memory_(memory), layout_(layout), state_(&state), wake_(std::move(wake)) {}

  // Called again when the agent has announced its cores.
  void learn() noexcept;
  [[nodiscard]] std::uint32_t cores() const noexcept { return cores_; }
  [[nodiscard]] std::uint32_t core_of(Handle handle) const noexcept { return cores_ == 1 ? 0 : handle % cores_; }
  [[nodiscard]] bool is_linked() const noexcept { return linked_; }  // the agent reaches the area over a link
  // The link has the area's pages: none may be given back to the machine.
  [[nodiscard]] bool keeps_pages() const noexcept { return keeps_pages_; }

  // ---- commands
  // Remembers a result of false: before the process sleeps, it then asks the agent for a wake when there is room.
  [[nodiscard]] bool room(std::uint32_t core) const noexcept;
  [[nodiscard]] bool room_anywhere() const noexcept;
  // `read`: the position of bytes that the program has read, for commands of a flow.
  void post(std::uint32_t core, wire::TcpCommand command, std::uint64_t read) noexcept;
  // The flow has bytes up to `end` now. Over a link the bytes of a small send travel within its commands, which spares
  // the agent a read of the ring.
  void post_offer(std::uint32_t core, Handle handle, std::uint64_t end, Bytes sent, std::uint64_t read) noexcept;
  [[nodiscard]] std::uint64_t posted() const noexcept { return state_->posted; }
  [[nodiscard]] std::uint64_t posted(std::uint32_t core) const noexcept { return state_->commands[core]; }
  // After commands were posted: wakes every core with pending commands, because a process that died before its wake may
  // have posted to any of them. A wake is a system call, so the caller gives the lock up before.
  void tell_agent() const noexcept;

  // ---- events
  [[nodiscard]] bool has_events() const noexcept;
  // Passes all events of a core to `take`, whose result is true if there were any.
  template <class Take>
  bool take_all(std::uint32_t core, const Take& take) {
    const std::uint64_t posted = events_posted(core);
    std::uint64_t& taken = state_->events_taken[core];
    if (posted == taken) return false;
    for (; taken != posted; ++taken) take(event_at(core, taken));
    events_were_taken(core, taken);
    return true;
  }

  // ---- sleep
  // Called before a process sleeps: whether there are events or room for it. Clears waits_for_room().
  [[nodiscard]] bool look_before_sleep() noexcept;
  [[nodiscard]] bool waits_for_room() const noexcept { return state_->waits_for_room != 0; }
  // Over a link the agent does not see the flag of a process. `known`: the agent's knowledge of its sleep, kept for the
  // next time. False: the reserve of the ring is full, and the agent is about to take from it.
  struct KnownSleep {
    std::uint64_t position, woken, flags;
  };
  [[nodiscard]] bool post_sleep(std::uint32_t process, bool for_room, KnownSleep& known) noexcept;

 private:
  [[nodiscard]] bool has_room(std::uint32_t core, std::uint64_t entries) const noexcept;
  [[nodiscard]] std::uint64_t events_posted(std::uint32_t core) const noexcept;
  [[nodiscard]] wire::TcpEvent event_at(std::uint32_t core, std::uint64_t position) const noexcept;
  void events_were_taken(std::uint32_t core, std::uint64_t position) noexcept;
  void tell_core(std::uint32_t core) const noexcept;

  MutableBytes memory_;
  wire::TcpAreaLayout layout_;
  AreaRingsState* state_;
  Wake wake_;
  std::uint32_t cores_ = 1;
  bool linked_ = false, keeps_pages_ = false;
};

}  // namespace offpath::channel
