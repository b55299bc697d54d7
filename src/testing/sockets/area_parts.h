// The parts of an area (src/connections/area) without the calls, for tests of one of them. A script is the agent.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "connections/area/backlogs.h"
#include "connections/area/flow_rings.h"
#include "connections/area/free_handles.h"
#include "connections/area/handle_holders.h"
#include "connections/area/idle_memory.h"
#include "connections/area/memory_holders.h"
#include "connections/area/owed_commands.h"
#include "connections/area/process_table.h"
#include "connections/area/socket_records.h"
#include "testing/sockets/area_script.h"

namespace offpath::channel {

// The memory of an area, which is zeroed.
class AreaMemory {
 public:
  explicit AreaMemory(std::uint64_t bytes)
      : bytes_{static_cast<std::byte*>(
                   ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
               bytes} {
    OFP_ASSERT(static_cast<void*>(bytes_.data()) != MAP_FAILED);
  }
  ~AreaMemory() { ::munmap(bytes_.data(), bytes_.size()); }
  AreaMemory(const AreaMemory&) = delete;
  AreaMemory& operator=(const AreaMemory&) = delete;
  [[nodiscard]] MutableBytes bytes() const noexcept { return bytes_; }

 private:
  MutableBytes bytes_;
};

struct AreaParts {
  using Handle = std::uint32_t;

  explicit AreaParts(const SocketOptions& with, std::uint32_t cores = 1) : options(with) {
    records.make(options);
    agent.word(wire::tcp_word::cores).store(cores);
    commands.learn();
    OFP_ASSERT(processes.add().value() == 0);
    handles.spread();
  }

  // The commands of this kind since the last call. The ring has room again afterwards.
  std::vector<wire::TcpCommand> posted(wire::TcpCommandKind kind, std::uint32_t core = 0) {
    std::vector<wire::TcpCommand> all = agent.commands(core);
    agent.take_commands(core);
    std::erase_if(all, [&](const wire::TcpCommand& command) { return command.kind != kind; });
    return all;
  }
  // No command has room until posted().
  void fill_ring(std::uint32_t core = 0) {
    wire::TcpCommand command{};
    command.kind = wire::TcpCommandKind::sleep;
    while (commands.room(core)) commands.post(core, command, 0);
  }
  // An established flow of process 0.
  Handle flow(std::uint32_t core = 0) {
    const Handle handle = handles.take(core).value();
    SocketCell& cell = records.cell(handle);
    cell.is = SocketCell::Is::flow;
    cell.told = wire::tcp_event::connected;
    holders.hold(0, handle);
    return handle;
  }

  SocketOptions options;
  AreaMemory memory{SocketRecords::layout_of(options).bytes};
  SocketRecords records{memory.bytes(), options};
  AreaScript agent{memory.bytes(), records.layout()};
  AreaRings commands{memory.bytes(), records.layout(), records.shared().rings, [](std::uint32_t) {}};
  ProcessTable processes{records.processes(), records.flows(), records.shared().rings.processes};
  MemoryHolders memory_holders{records};
  FlowRings rings{records, commands, memory_holders};
  IdleMemory idle{records, commands, memory_holders, rings};
  OwedCommands owed{records, commands, rings, idle};
  FreeHandles handles{records, commands, processes, memory_holders, rings, idle};
  Backlogs backlogs{records, commands, rings, handles};
  HandleHolders holders{records, processes};
};

}  // namespace offpath::channel
