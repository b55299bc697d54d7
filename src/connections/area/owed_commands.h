// Commands that handles owe the agent: they are given as soon as there is room in its ring. Each handle owes at most
// one of each kind (Owed), so nothing waits in a list.
#pragma once

#include "connections/area/flow_rings.h"
#include "connections/area/idle_memory.h"
#include "connections/area/socket_records.h"

namespace offpath::channel {

class OwedCommands {
 public:
  using Handle = std::uint32_t;
  OwedCommands(const SocketRecords& records, AreaRings& commands, FlowRings& rings, IdleMemory& memory) noexcept
      : records_(records),
        commands_(commands),
        rings_(rings),
        memory_(memory),
        owing_(records.set(SocketRecords::Set::owing)) {}

  // Marks commands as owed, and gives them now if there is room. 0: those that are marked already.
  void owe(Handle handle, std::uint8_t what) noexcept;
  // Gives owed commands where there is room again: some in a call.
  void settle_some() noexcept;
  [[nodiscard]] bool empty() noexcept { return owing_.empty(); }
  // After the death of a process under the lock: a handle that has marks is among those that owe.
  void recount(Handle handle) noexcept {
    if (records_.cell(handle).owed != 0) remember(handle);
  }

 private:
  bool settle(Handle handle) noexcept;
  void remember(Handle handle) noexcept {
    owing_.add(handle);
    records_.shared().set_unsettled(true);
  }

  const SocketRecords& records_;
  AreaRings& commands_;
  FlowRings& rings_;
  IdleMemory& memory_;
  HandleSet owing_;
};

}  // namespace offpath::channel
