// Listeners of the program: on each core, the accept slots that the agent has for a listener's next connections, and
// the connections that wait to be accepted. A listener keeps as many slots as its backlog, as far as handles and the
// agent's rings have room.
#pragma once

#include <utility>

#include "connections/area/flow_rings.h"
#include "connections/area/free_handles.h"
#include "connections/area/socket_records.h"

namespace offpath::channel {

class Backlogs {
 public:
  using Handle = std::uint32_t;
  Backlogs(const SocketRecords& records, AreaRings& commands, FlowRings& rings, FreeHandles& handles) noexcept
      : records_(records),
        commands_(commands),
        rings_(rings),
        handles_(handles),
        lacking_(records.set(SocketRecords::Set::lacking)) {}

  // The handle becomes a listener. 0: the port is only bound. fill() follows, once the agent has its command.
  void begin(Handle handle, std::uint32_t backlog) noexcept;
  // Gives the listener accept slots. Cores but the first one get theirs when it listens there (`listening`).
  void fill(Handle listener) noexcept;
  // For listeners that lack slots, as far as there is room now.
  void fill_some() noexcept;
  // Whether a listener lacks accept slots on some core while handles and room are free.
  [[nodiscard]] bool may_fill() const noexcept;
  // Whether no listener lacks any.
  [[nodiscard]] bool all_full() noexcept;

  // Whether the listener of an accept slot still is there.
  [[nodiscard]] bool is_expected(Handle slot) const noexcept {
    return is_of(records_.cell(slot), records_.cell(records_.cell(slot).listener));
  }
  // An expected accept slot has become a connection, which waits now.
  void arrived(Handle flow) noexcept;
  // The agent has given an accept slot back.
  void returned(Handle slot) noexcept;
  // Among the first waiting connections of each core, the one that began first; no_handle: none waits.
  [[nodiscard]] Handle oldest(Handle listener) const noexcept;
  // The program accepts it.
  void accept(Handle listener, Handle oldest) noexcept;
  // The listener ends: it asks for no more slots, and connections under way to it are dropped. `refuse` is called with
  // each connection that waits.
  template <class Refuse>
  void dismiss(Handle listener, const Refuse& refuse) noexcept {
    records_.cell(listener).serial = ++records_.shared().listeners;
    // Before a handle is free.
    for (std::uint32_t core = 0; core < commands_.cores(); ++core) set_lacks(listener, core, false);
    for (std::uint32_t core = 0; core < commands_.cores(); ++core) {
      Handle flow = std::exchange(records_.accept_slots(listener, core).first_waiting, no_handle);
      while (flow != no_handle) {
        const Handle next = records_.cell(flow).next;
        refuse(flow);
        flow = next;
      }
    }
  }
  // After the death of a process under the lock: begin_recount(), then each handle.
  void begin_recount() noexcept { records_.shared().lacking.fill(0); }
  void recount(Handle handle) noexcept;

 private:
  [[nodiscard]] static bool is_of(const SocketCell& slot, const SocketCell& listener) noexcept {
    return listener.is == SocketCell::Is::listener && listener.serial == slot.serial;
  }
  [[nodiscard]] std::uint32_t slots_of_core(const SocketCell& listener) const noexcept;
  void fill(Handle listener, std::uint32_t core) noexcept;
  void set_lacks(Handle listener, std::uint32_t core, bool lacks) noexcept;
  [[nodiscard]] bool lacks_any(Handle handle) const noexcept {
    return records_.cell(handle).is == SocketCell::Is::listener && records_.cell(handle).lacks != 0;
  }

  const SocketRecords& records_;
  AreaRings& commands_;
  FlowRings& rings_;
  FreeHandles& handles_;
  HandleSet lacking_;
};

}  // namespace offpath::channel
