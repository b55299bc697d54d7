// Programs' connections: the owner of a stack's flows whose payload lies in programs' memory. A state machine: it is
// called in rounds and knows neither channels nor descriptors. Read wire/areas/tcp_area.h first, then program_area.h
// and core_message.h. A program's command is a TcpCommand, an event for it a TcpEvent.
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
// Read this first in src/tcp/program, then program_area.h, ring_blocks.h, core_message.h, and for programs on other
// machines area_mirror.h and look_timing.h.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/full_ring.h"
#include "tcp/program/core_message.h"
#include "tcp/program/program_area.h"
#include "tcp/program/ring_blocks.h"
#include "tcp/stack/stack.h"

namespace offpath::tcp {

// By default what the settings `tcp.*` are by default.
struct TcpServiceLimits {
  std::uint32_t programs_max = 256;
  std::uint32_t flows_of_program_max = 4096;        // handles of one program
  std::uint64_t bytes_of_program_max = 8ull << 30;  // size of one program's area
  // Memory in receive rings, into which the agent writes what peers send: for one user, and for all. Each core has an
  // equal part of it.
  std::uint64_t receive_bytes_of_user_max = 64ull << 40, receive_bytes_max = 16ull << 30;
};

struct TcpServiceCounters {
  std::uint64_t commands = 0, events = 0;
  std::uint64_t stored_bytes = 0;         // into receive rings, including duplicates
  std::uint64_t without_accept_slot = 0;  // peers' connections that waited for an accept slot
  // connections refused or delayed because receive rings had reached their limit
  std::uint64_t without_memory = 0;
  std::uint64_t rings_grown = 0, rings_refused = 0;  // larger rings that programs asked for, and limits did not allow
  std::uint64_t rings_shrunk = 0;                    // first rings again
  std::uint64_t programs_refused = 0, programs_ended = 0;  // ended: for invalid values
};

class TcpService final : public Owner {
 public:
  // The program's area as it is mapped now; empty if it was withdrawn.
  using Memory = std::function<MutableBytes()>;

  // Core `core` of `cores`. Programs open at core 0 first; processes are announced to every core.
  explicit TcpService(const TcpServiceLimits& limits, std::uint32_t core = 0, std::uint32_t cores = 1)
      : limits_(limits), core_(core), cores_(cores) {}
  // Set after construction, because the stack needs its owner first. `stack` outlives this.
  void serve(Stack& stack) noexcept { stack_ = &stack; }

  // The user of a program. Ports below 1024 need privilege.
  struct Who {
    std::uint32_t user = 0;
    bool privileged = false;
    bool linked = false;  // on another machine: the area is the agent's copy, so its send rings are charged as well
    std::uint32_t user_there = 0;  // linked: its user on that machine; `user` is the relay's user

    // Programs of one owner may share ports (SO_REUSEPORT).
    [[nodiscard]] std::uint64_t owner() const noexcept {
      return linked ? (std::uint64_t{user} + 1) << 32 | user_there : user;
    }
  };
  // `number` names the program and is never reused. Error: the program has an area already, there are too many
  // programs, the area is too large, or its memory is not mapped. `blocks`: those of core 0, at every other core.
  [[nodiscard]] Status open(std::uint64_t number, const wire::TcpAreaLayout& layout, const Who& who, Memory memory,
                            std::shared_ptr<RingBlocks> blocks = nullptr);
  [[nodiscard]] std::shared_ptr<RingBlocks> blocks(std::uint64_t number) const { return programs_.at(number).blocks; }
  // The program's memory is not touched afterwards. A flow whose bytes have all arrived ends with FIN, others with RST.
  void close(std::uint64_t number, TimeNs now);
  [[nodiscard]] bool has(std::uint64_t number) const noexcept { return programs_.contains(number); }
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
  // Sleeping processes that have events. For a process that has ended, its event is written, and the other processes
  // must be notified, asleep or not.
  struct Wake {
    std::uint64_t program;
    std::uint32_t process;
    friend bool operator==(const Wake&, const Wake&) noexcept = default;
  };
  [[nodiscard]] std::vector<Wake> take_wakes() noexcept { return std::exchange(wakes_, {}); }

  [[nodiscard]] std::vector<CoreMessage> take_messages() noexcept { return std::exchange(messages_, {}); }
  void on_message(const CoreMessage& message, TimeNs now);  // called between rounds, in each sender's order

  [[nodiscard]] const TcpServiceCounters& counters() const noexcept { return counters_; }
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
  FlowShare share(std::uint64_t tag) const override;
  Payload payload(FlowId flow, std::uint64_t tag, std::uint64_t position, std::uint32_t bytes) override;
  void store(FlowId flow, std::uint64_t tag, std::uint64_t position, Bytes bytes) override;

 private:
  // The object behind a handle. A free one may still have events to deliver.
  struct Held : wire::TcpPositionsOut, wire::TcpPositionsIn {
    struct Ring {
      std::uint64_t at = 0;
      std::uint32_t bytes = 0;
      bool lent = false;  // a larger one: its memory is used for other flows later
    };
    // From one ring of a direction to a larger one.
    struct Move {
      std::uint64_t from = 0;  // bytes before it are in the ring `before`
      Ring before{};
      TimeNs marked_at = 0, advise_at = 0;  // the time of the mark; when a larger ring may be advised again
      bool advised = false;
    };
    // bound: has a port, on core 0. stopping: waits for the other cores' answers. claiming: waits for core 0's decision
    // about the port.
    enum class Is : std::uint8_t { free, bound, listener, stopping, accept_slot, claiming, flow } is = Is::free;
    std::uint8_t events = 0;
    wire::TcpError error = wire::TcpError::none;
    bool listed = false;                              // in Program::listed
    std::uint8_t moving = 0;                          // bits of the directions whose ring before holds bytes still
    std::uint8_t shut = 0;                            // bits of wire::tcp_shut not yet delivered
    bool claims = false;                              // core 0 keeps its port for it
    bool finishes = false;                            // claiming: FIN follows as soon as the flow exists
    std::uint16_t port = 0, reuse = 0, families = 0;  // of a port, flags of its command
    // acknowledged and allowed, lower halves, when the ring of the direction was measured
    std::array<std::uint32_t, 2> marks{};
    std::array<Ring, 2> rings{}, firsts{};  // by direction; firsts: those that its first command named
    FlowId id{};
    FlowKey key{};
    std::uint32_t listener = 0;
    std::uint64_t holders = ~0ull;  // bits of the processes to wake for it
    // A listener's accept slots. Those whose rings are still to be charged come last.
    std::set<std::pair<bool, std::uint32_t>> accept_slots{};
    bool costs = false;         // of an accept slot: the first of the pair
    std::uint32_t awaited = 0;  // answers still expected from other cores
    FlowOptions options{};      // kept while claiming
    std::array<Move, 2> moves{};
    std::uint32_t ring_events = 0;  // bits of wire::tcp_ring not yet delivered

    [[nodiscard]] bool is_for(IpFamily family) const noexcept { return (families & wire::tcp_for(family)) != 0; }
    [[nodiscard]] Ring& ring(wire::TcpWay way) noexcept { return rings[static_cast<std::size_t>(way)]; }
    [[nodiscard]] const Ring& ring(wire::TcpWay way) const noexcept { return rings[static_cast<std::size_t>(way)]; }
    [[nodiscard]] static std::uint8_t bit(wire::TcpWay way) noexcept {
      return static_cast<std::uint8_t>(1u << static_cast<unsigned>(way));
    }
    // Whether half of a ring has passed since the last time that this was true.
    [[nodiscard]] bool passes(wire::TcpWay way, std::uint64_t position) noexcept {
      std::uint32_t& mark = marks[static_cast<std::size_t>(way)];
      if (static_cast<std::uint32_t>(position) - mark < ring(way).bytes / 2) return false;
      mark = static_cast<std::uint32_t>(position);
      return true;
    }
    [[nodiscard]] bool is_moving(wire::TcpWay way) const noexcept { return (moving & bit(way)) != 0; }
  };
  struct Program {
    Program(std::uint64_t number_, const wire::TcpAreaLayout& layout, std::uint32_t core, const Who& who_,
            Memory memory_, std::shared_ptr<RingBlocks> blocks_)
        : number(number_), area(layout, core), who(who_), memory(std::move(memory_)), blocks(std::move(blocks_)) {}
    std::uint64_t number;
    std::uint32_t place = 0;  // index in places_
    ProgramArea area;
    Who who;
    Memory memory;
    std::vector<Held> held{};  // up to the highest handle that was used
    std::deque<std::uint32_t> listed{};
    std::vector<std::uint32_t> processes{0};
    std::deque<std::uint32_t> departed{};  // the other processes are still to be told; each once, so the set is bounded
    std::shared_ptr<RingBlocks> blocks;
    std::uint64_t charged_bytes = 0, lent_bytes = 0;  // by this core
    FullRing commands_full{}, events_full{};
    // core 0: ports that this program connects from, and how many connections use each
    std::map<std::pair<IpFamily, std::uint16_t>, std::uint32_t> claims{};
  };
  // A handle that listens on a port, or, on core 0, is bound to it.
  struct Sharer {
    Program* program;
    std::uint32_t handle;
    [[nodiscard]] Held& held() const noexcept { return program->held[handle]; }
    friend bool operator==(const Sharer&, const Sharer&) noexcept = default;
  };

  [[nodiscard]] Program* find(std::uint64_t number) noexcept;  // a search; not for the path of a segment
  // A flow's tag: its program's place, the lower half of the program's number, and the handle. Flows outlive their
  // programs for a while and a place is reused; the number then tells the programs apart.
  [[nodiscard]] static std::uint64_t tag_of(const Program& program, std::uint32_t handle) noexcept {
    return std::uint64_t{program.place} << 48 | (program.number & 0xffff'ffff) << 16 | handle;
  }
  [[nodiscard]] Program* program_of(std::uint64_t tag) const noexcept;  // null: the program has ended
  // The handle behind a flow's tag; null if its program has ended or the handle belongs to another flow by now.
  [[nodiscard]] static Held* held_of(Program* program, std::uint64_t tag, FlowId flow) noexcept;
  [[nodiscard]] std::uint32_t take_place(Program& program);
  void end(Program& program, Failure why);
  void finish_ended(TimeNs now);
  void leave(Program& program, TimeNs now);
  // Whether the program has read all bytes of its flow. A peer has to learn it if not (RFC 2525, 2.17).
  [[nodiscard]] bool is_read(const Program& program, std::uint32_t handle) const noexcept;
  void remove(Program& program, TimeNs now);

  // tcp_commands.cc
  static constexpr unsigned commands_of_a_round = 256;  // then the next program has its turn
  bool take_commands(Program& program, TimeNs now);
  [[nodiscard]] Status take(Program& program, const wire::TcpCommand& command, TimeNs now);
  [[nodiscard]] static Status take_rings(Program& program, Held& held, const wire::TcpCommand& command);
  [[nodiscard]] Status listen(Program& program, Held& held, const wire::TcpCommand& command);
  void bind(Program& program, Held& held, const wire::TcpCommand& command);
  [[nodiscard]] Status add_accept_slot(Program& program, Held& held, const wire::TcpCommand& command);
  [[nodiscard]] Status connect(Program& program, Held& held, const wire::TcpCommand& command,
                               const wire::TcpConnect& to, TimeNs now);
  void connect_now(Program& program, std::uint32_t handle, TimeNs now);
  [[nodiscard]] Status for_claiming(Held& held, const wire::TcpCommand& command) const;
  [[nodiscard]] static Status check_position(const Held& held, const wire::TcpCommand& command);
  [[nodiscard]] Status for_flow(Program& program, Held& held, const wire::TcpCommand& command, TimeNs now);
  void shut(Program& program, std::uint32_t handle);
  void give_back(Program& program, std::uint32_t handle);

  // tcp_rings.cc
  enum class RingIs { first, larger };
  // A first ring that a command names. Error: a flow has a larger one there.
  [[nodiscard]] static Status keep_for_first(const Program& program, std::uint32_t handle, const Held::Ring& ring);
  // Charges a flow's first rings to the user. Returns false if the limit is reached.
  [[nodiscard]] bool charge(Program& program, const Held& held);
  [[nodiscard]] bool may_charge(const Program& program, std::uint64_t bytes, RingIs is) const;
  [[nodiscard]] static std::uint64_t cost_of(const Program& program, wire::TcpWay way, const Held::Ring& ring);
  [[nodiscard]] static std::uint64_t cost_of(const Program& program, const Held& held);  // of both rings
  static void pay(Program& program, wire::TcpWay way, const Held::Ring& ring);
  static void return_ring(Program& program, Held::Ring& ring);
  static void return_rings(Program& program, Held& held);
  void measure(Held& held, wire::TcpWay way, TimeNs now) noexcept;
  [[nodiscard]] Status replace(Program& program, Held& held, const wire::TcpCommand& command);
  [[nodiscard]] Status grow(Program& program, Held& held, const wire::TcpCommand& command);
  [[nodiscard]] Status shrink(Program& program, Held& held, const wire::TcpCommand& command);
  void answer_ring(Program& program, const wire::TcpCommand& command, std::uint32_t bits);
  [[nodiscard]] Status check_begin(const Held& held, wire::TcpWay way, const wire::TcpCommand& command) const;
  static void end_move(Program& program, Held& held, wire::TcpWay way);
  void note_allowed(Program& program, std::uint32_t handle, std::uint64_t position, TimeNs now);

  // tcp_listeners.cc
  void listens(Program& program, std::uint32_t handle, const FlowOptions& options);
  void stop(Program& program, std::uint32_t handle);
  void stop_here(Program& program, std::uint32_t handle);
  [[nodiscard]] bool listen_here(Program& program, std::uint32_t handle, const FlowOptions& options);
  void leave_port(Program& program, std::uint32_t handle);
  // Whether a handle may have the port that it names; `except` has it already.
  [[nodiscard]] bool may_have(const Program& program, const Held& wanted, std::uint32_t except) const;
  [[nodiscard]] std::uint16_t free_port();  // 0: there is none
  // The listener on this port that the stack knows; null: nobody listens.
  [[nodiscard]] const Sharer* listener_at(IpFamily family, std::uint16_t port) const noexcept;
  [[nodiscard]] std::optional<Sharer> slot_of(IpFamily family, std::uint16_t port);
  void ask_others(Program& program, std::uint32_t handle, CoreMessage message);
  void on_done(Program& program, std::uint32_t handle);
  // Whether the program may connect from this port, which is then kept for it.
  [[nodiscard]] bool claim_here(Program& program, IpFamily family, std::uint16_t port);
  static void unclaim_here(Program& program, IpFamily family, std::uint16_t port);
  void unclaim(Program& program, Held& held);
  void on_claim(const CoreMessage& message, Program& program);
  void on_answer(const CoreMessage& message, Program& program, TimeNs now);
  [[nodiscard]] bool is_claimed_by_others(const Program& program, const Held& wanted) const;

  void take_change(const FlowChange& change, TimeNs now);
  void tell(Program& program, std::uint32_t handle, std::uint8_t what, wire::TcpError error = wire::TcpError::none);
  bool write_events(Program& program);
  [[nodiscard]] Result<bool> write_departures(Program& program);

  TcpServiceLimits limits_;
  std::uint32_t core_, cores_;
  Stack* stack_ = nullptr;
  std::map<std::uint64_t, Program> programs_;           // by number
  std::vector<Program*> places_;                        // null: free
  std::map<std::uint16_t, std::vector<Sharer>> ports_;  // several may share one (SO_REUSEPORT)
  std::vector<Ended> ended_;
  std::vector<std::uint64_t> to_end_;  // programs to end in this round: their flows end between looks at programs
  std::vector<Wake> wakes_;
  std::vector<CoreMessage> messages_;
  std::uint16_t last_port_ = 0;  // that free_port() found
  TcpServiceCounters counters_;
};

}  // namespace offpath::tcp
