// Handles that are free, in a list for each core: core h % cores has handle h. New connections take the cores in turn.
// Two things stay with a handle when it is reused: the used pages of its first rings, and its locks.
#pragma once

#include "connections/area/flow_rings.h"
#include "connections/area/idle_memory.h"
#include "connections/area/process_table.h"
#include "connections/area/socket_records.h"

namespace offpath::channel {

class FreeHandles {
 public:
  using Handle = std::uint32_t;
  FreeHandles(const SocketRecords& records, const AreaRings& commands, const ProcessTable& processes,
              MemoryHolders& holders, FlowRings& rings, IdleMemory& memory) noexcept
      : records_(records),
        commands_(commands),
        processes_(processes),
        holders_(holders),
        rings_(rings),
        memory_(memory) {}

  // All handles are free. Called once, when the number of cores is known.
  void spread() noexcept;
  [[nodiscard]] bool has_any(std::uint32_t core) const noexcept {
    return records_.shared().first_free[core] != no_handle;
  }
  // The next core in turn that has free handles.
  [[nodiscard]] std::uint32_t next_core() noexcept;
  // A handle whose cell is clear. None: no handle of the core is free.
  [[nodiscard]] std::optional<Handle> take(std::uint32_t core) noexcept;
  void give(Handle handle) noexcept;

 private:
  void clear(Handle handle) noexcept;

  const SocketRecords& records_;
  const AreaRings& commands_;
  const ProcessTable& processes_;
  MemoryHolders& holders_;
  FlowRings& rings_;
  IdleMemory& memory_;
};

}  // namespace offpath::channel
