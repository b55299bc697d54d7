// Programs' connections: the owner of a stack's flows whose payload lies in programs' memory. A state machine: it is
// called in rounds and knows neither channels nor descriptors. Commands and events are those of wire/areas/tcp_area.h:
// TcpCommand and TcpEvent.
//
//   a round:   attach   the programs' memory as it is mapped now
//              (the stack receives: payload goes into the programs' rings)
//              react    commands -> the stack; the stack's changes -> events
//              (the stack sends: payload comes out of the programs' rings)
//
// There is one service for each core: it has its own rings in every program's area, and the flows whose handles belong
// to its core. Services exchange the messages of core_message.h, and share a program's RingBlocks.
//
// Everything that a program writes is checked before use: handles, places of rings, positions. A program that writes
// invalid values is closed with its flows; other programs are not affected.
//
// This class coordinates; the state is in ProgramTable, PortTable, RingCharges, CoreAgreement and ProgramWakes. The
// path of a segment is payload() and store(): a tag gives the program and its handle without a search.
//
// Read this first in src/tcp/program, then tcp/area/program_area.h, program.h, program_table.h, program_commands.h,
// program_events.h, port_table.h, core_message.h and ring_moves.h.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/full_ring.h"
#include "tcp/program/core_agreement.h"
#include "tcp/program/core_message.h"
#include "tcp/program/port_table.h"
#include "tcp/program/program_commands.h"
#include "tcp/program/program_events.h"
#include "tcp/program/program_table.h"
#include "tcp/program/program_wakes.h"
#include "tcp/program/ring_charges.h"
#include "tcp/program/ring_moves.h"
#include "tcp/program/service_core.h"
#include "tcp/stack/stack.h"

namespace offpath::tcp {

class TcpService final : public Owner {
 public:
  using Memory = ProgramMemory;
  using Who = ProgramUser;
  using Wake = ProgramWakes::Process;

  // Core `core` of `cores`. Programs open at core 0 first; processes are announced to every core.
  explicit TcpService(const TcpServiceLimits& limits, std::uint32_t core = 0, std::uint32_t cores = 1)
      : core_{limits, core, cores} {}
  // Set after construction, because the stack needs its owner first. `stack` outlives this.
  void serve(Stack& stack) noexcept { core_.stack = &stack; }

  // `number` names the program and is never reused. Error: the program has an area already, there are too many
  // programs, the area is too large, or its memory is not mapped. `blocks`: those of core 0, at every other core.
  [[nodiscard]] Status open(std::uint64_t number, const wire::TcpAreaLayout& layout, const Who& who, Memory memory,
                            std::shared_ptr<RingBlocks> blocks = nullptr);
  // Of an open program.
  [[nodiscard]] std::shared_ptr<RingBlocks> blocks(std::uint64_t number) const {
    return programs_.find(number)->blocks;
  }
  // For an open program that is linked: how long its link takes for an answer by now (AreaMirror::answer_ns). Bytes
  // stay in a ring for so much longer.
  void measure_link(std::uint64_t number, std::function<TimeNs()> answer_ns) {
    programs_.find(number)->answer_ns = std::move(answer_ns);
  }
  // A flow whose bytes have all arrived ends with FIN, others with RST: so many in each round. Until the last one, the
  // program's memory is read as long as Memory returns it.
  void close(std::uint64_t number, TimeNs now);
  [[nodiscard]] bool has(std::uint64_t number) const noexcept { return programs_.find(number) != nullptr; }
  // A program begins with process 0. Error::protocol: the process number is invalid or taken.
  [[nodiscard]] Status add_process(std::uint64_t number, std::uint32_t process);
  // The other processes are told, and take over what this one held. Returns false if it was the last.
  bool remove_process(std::uint64_t number, std::uint32_t process);

  void attach(TimeNs now);  // also ends a fall_asleep()
  bool react(TimeNs now);
  // Returns false if there is work. Otherwise programs with commands wake this side over their channels.
  [[nodiscard]] bool fall_asleep();

  struct Ended {
    std::uint64_t program;
    Failure why;
  };
  [[nodiscard]] std::vector<Ended> take_ended() noexcept { return std::exchange(ended_, {}); }
  [[nodiscard]] std::vector<Wake> take_wakes() noexcept { return wakes_.take(); }
  void wake_threads() { wakes_.wake_threads(programs_); }

  [[nodiscard]] std::vector<CoreMessage> take_messages() noexcept { return agreement_.take_messages(); }
  void on_message(const CoreMessage& message, TimeNs now);  // called between rounds, in each sender's order

  [[nodiscard]] const TcpServiceCounters& counters() const noexcept { return core_.counters; }
  struct ProgramStatus {
    std::uint64_t number, bytes;
    std::size_t flows, listeners, accept_slots;
    std::uint64_t receive_bytes;  // of the area: pages that the agent may have written to, charged by this core
    std::uint64_t lent_bytes;     // larger rings that flows have
    FullRing commands_full, events_full;
  };
  [[nodiscard]] std::vector<ProgramStatus> programs() const;
  struct ConnectionStatus {
    std::uint64_t program;
    std::uint32_t core;  // the connection's core; 0 for a listener
    bool listens;        // a listener: only the port is set
    FlowState state;
    FlowKey key;
    std::uint64_t received, offered,
        acknowledged;  // bytes so far: from the peer, from the program, and of these acknowledged
    TimeNs round_trip_ns;
  };
  // Listeners, and the connections that the stack still has; at most `most`.
  [[nodiscard]] std::vector<ConnectionStatus> connections(std::size_t most) const;

  // ---- Owner
  std::optional<std::uint64_t> accept(std::uint64_t listener_tag, FlowId flow, const FlowKey& key) override;
  const FlowOptions* options(std::uint64_t tag) const override;
  FlowShare share(std::uint64_t tag) const override;
  Payload payload(FlowId flow, std::uint64_t tag, std::uint64_t position, std::uint32_t bytes) override;
  void store(FlowId flow, std::uint64_t tag, std::uint64_t position, Bytes bytes) override;

 private:
  void end(Program& program, Failure why);
  void finish_ended(TimeNs now);
  void remove(Program& program, TimeNs now);
  [[nodiscard]] Status admit(std::uint64_t number, const wire::TcpAreaLayout& layout, const Memory& memory);
  bool take_commands(Program& program, TimeNs now);
  bool write_events(Program& program);
  void take_change(const FlowChange& change, TimeNs now);

  // Each of these uses those before it.
  ServiceCore core_;
  ProgramTable programs_;
  RingCharges charges_{core_, programs_};
  RingMoves rings_{core_, charges_};
  PortTable ports_{core_, programs_, charges_};
  CoreAgreement agreement_{core_, ports_};
  ProgramCommands commands_{core_, ports_, charges_, rings_, agreement_};
  ProgramWakes wakes_;
  ProgramEvents events_{core_, wakes_};

  std::vector<Ended> ended_;
  std::vector<std::uint64_t> to_end_;  // programs to end in this round: their flows end between looks at programs
};

}  // namespace offpath::tcp
