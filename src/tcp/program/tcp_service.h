// Programs' connections: the owner of a stack's flows whose payload lies in programs' memory. A state machine: it is
// asked in rounds and knows neither channels nor descriptors. Read wire/areas/tcp_area.h first.
//
//   a round:   attach   the programs' memory as it is mapped now
//              (the stack receives: payload goes into the programs' rings)
//              react    wishes -> the stack; the stack's changes -> news
//              (the stack sends: payload comes out of the programs' rings)
//
// One for each core: each has rings of its own in every program's area, and the flows whose handles are its own. They
// say nothing to each other but what core_message.h has.
//
// Everything a program says is checked before it is used: handles, places of rings, positions. A program whose words
// make no sense is ended, with its flows and no others.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tcp/program/core_message.h"
#include "tcp/program/program_area.h"
#include "tcp/stack/stack.h"

namespace offpath::tcp {

struct TcpServiceLimits {
  std::uint32_t programs_max = 256;
  std::uint32_t flows_of_program_max = 4096;        // handles
  std::uint64_t bytes_of_program_max = 1ull << 30;  // of its area
  // Of receive rings, into which the agent writes what peers send: one user's, and all. Of several cores, each has its
  // part.
  std::uint64_t receive_bytes_of_user_max = 64ull << 40, receive_bytes_max = 64ull << 40;
};

struct TcpServiceCounters {
  std::uint64_t wishes = 0, news = 0;
  std::uint64_t stored_bytes = 0;  // into receive rings, repeats included
  std::uint64_t without_seat = 0;  // connections of peers that had to wait for the program to make room
  // connections that were refused or had to wait, because receive rings have what they may
  std::uint64_t without_memory = 0;
  std::uint64_t programs_refused = 0, programs_ended = 0;  // ended: for what made no sense
};

class TcpService final : public Owner {
 public:
  // The program's area as it is mapped at the moment; empty: it was withdrawn.
  using Memory = std::function<MutableBytes()>;

  // Core `core` of `cores`. Programs open at core 0 first; processes are said to all.
  explicit TcpService(const TcpServiceLimits& limits, std::uint32_t core = 0, std::uint32_t cores = 1)
      : limits_(limits), core_(core), cores_(cores) {}
  // The stack is made with its owner, so it comes later; it outlives this.
  void serve(Stack& stack) noexcept { stack_ = &stack; }

  // Whose a program is. Ports below 1024 are for the privileged.
  struct Who {
    std::uint32_t user = 0;
    bool privileged = false;
  };
  // `number` is the program's, never used again. Error: it has an area already, there are too many, too large an area,
  // memory that is not mapped.
  [[nodiscard]] Status open(std::uint64_t number, const wire::TcpAreaLayout& layout, const Who& who, Memory memory);
  // The program's memory is not touched any more. A flow whose bytes have all arrived ends with FIN, others with RST.
  void close(std::uint64_t number, TimeNs now);
  [[nodiscard]] bool has(std::uint64_t number) const noexcept { return programs_.contains(number); }
  // A program begins with the process 0. Error::protocol: it cannot have this one.
  [[nodiscard]] Status add_process(std::uint64_t number, std::uint32_t process);
  // The others are told, to whom it leaves what it had. False: it was the last.
  bool remove_process(std::uint64_t number, std::uint32_t process);

  void attach(TimeNs now);  // awake again, if it slept
  bool react(TimeNs now);
  // False: there is something to do. Afterwards a program that wishes something says so by whatever its wakes go over.
  [[nodiscard]] bool fall_asleep();

  struct Ended {
    std::uint64_t program;
    Failure why;
  };
  [[nodiscard]] std::vector<Ended> take_ended() noexcept { return std::exchange(ended_, {}); }
  // Processes that sleep, and for which there is something.
  struct Wake {
    std::uint64_t program;
    std::uint32_t process;
    friend bool operator==(const Wake&, const Wake&) noexcept = default;
  };
  [[nodiscard]] std::vector<Wake> take_wakes() noexcept { return std::exchange(wakes_, {}); }

  [[nodiscard]] std::vector<CoreMessage> take_messages() noexcept { return std::exchange(messages_, {}); }
  void on_message(const CoreMessage& message, TimeNs now);  // between rounds, in the order of who sent it

  [[nodiscard]] const TcpServiceCounters& counters() const noexcept { return counters_; }
  struct ProgramStatus {
    std::uint64_t number, bytes;
    std::size_t flows, listeners, seats;
    std::uint64_t receive_bytes;  // of its area that the agent may have written to
  };
  [[nodiscard]] std::vector<ProgramStatus> programs() const;
  struct ConnectionStatus {
    std::uint64_t program;
    std::uint32_t core;  // whose a connection is; of a listener, 0
    bool listens;        // of a listener there is the port alone
    FlowState state;
    FlowKey key;
    std::uint64_t received, offered, acknowledged;  // bytes so far, of the peer's and of the program's
    TimeNs round_trip_ns;
  };
  // Listeners, and connections that the stack has still; no more than so many.
  [[nodiscard]] std::vector<ConnectionStatus> connections(std::size_t most) const;

  // ---- Owner
  std::optional<std::uint64_t> accept(std::uint64_t listener_tag, FlowId flow, const FlowKey& key) override;
  FlowShare share(std::uint64_t tag) const override;
  Payload payload(FlowId flow, std::uint64_t tag, std::uint64_t position, std::uint32_t bytes) override;
  void store(FlowId flow, std::uint64_t tag, std::uint64_t position, Bytes bytes) override;

 private:
  // What a handle stands for. One that is free may still have news to be told.
  struct Held : wire::TcpPositionsOut, wire::TcpPositionsIn {
    // stopping: other cores have to answer first. claiming: core 0 has to, about the port.
    enum class Is : std::uint8_t { free, listener, stopping, seat, claiming, flow } is = Is::free;
    std::uint8_t news = 0;
    wire::TcpError error = wire::TcpError::none;
    bool listed = false;    // in Program::listed
    std::uint8_t shut = 0;  // wire::tcp_shut, to be told
    bool claims = false;    // its port is kept for it at core 0
    bool finishes = false;  // of one that claims: as soon as it is a flow
    std::uint16_t port = 0;
    FlowId id{};
    FlowKey key{};
    std::uint32_t listener = 0;
    std::uint32_t send_bytes = 0, receive_bytes = 0;
    std::uint64_t send_at = 0, receive_at = 0;
    std::uint64_t holders = ~0ull;    // bits of processes that are woken for it
    std::set<std::uint32_t> seats{};  // of a listener
    std::uint32_t awaited = 0;        // answers of other cores about it
    FlowOptions options{};            // of one that claims
  };
  struct Program {
    Program(std::uint64_t number_, const wire::TcpAreaLayout& layout, std::uint32_t core, const Who& who_,
            Memory memory_)
        : number(number_), area(layout, core), who(who_), memory(std::move(memory_)) {}
    std::uint64_t number;
    std::uint32_t place = 0;  // in places_
    ProgramArea area;
    Who who;
    Memory memory;
    std::vector<Held> held{};  // up to the highest handle that was used
    std::deque<std::uint32_t> listed{};
    std::vector<std::uint32_t> processes{0};
    std::deque<std::uint32_t>
        departed{};               // of which the others have to be told: each once, so no more than there may be
    std::vector<bool> charged{};  // blocks of the area in which receive rings of connections lie or lay
    std::uint64_t charged_bytes = 0;
    // at core 0: ports that it has named for connections, and for how many
    std::map<std::uint16_t, std::uint32_t> claims{};
  };

  [[nodiscard]] Program* find(std::uint64_t number) noexcept;  // a search: not for what each segment needs
  // A flow's tag: the place of its program, the lower half of the program's number, and the handle. Flows outlive their
  // programs for a while, and a place is another program's then: the number tells.
  [[nodiscard]] static std::uint64_t tag_of(const Program& program, std::uint32_t handle) noexcept {
    return std::uint64_t{program.place} << 48 | (program.number & 0xffff'ffff) << 16 | handle;
  }
  [[nodiscard]] Program* program_of(std::uint64_t tag) const noexcept;  // null: it has ended
  // What a flow's tag stands for; null: its program has ended, or the handle is another flow's by now.
  [[nodiscard]] static Held* held_of(Program* program, std::uint64_t tag, FlowId flow) noexcept;
  [[nodiscard]] std::uint32_t take_place(Program& program);
  void end(Program& program, Failure why);
  void finish_ended(TimeNs now);
  void leave(Program& program, TimeNs now);

  // tcp_wishes.cc
  bool take_wishes(Program& program, TimeNs now);
  [[nodiscard]] Status take(Program& program, const wire::TcpWish& wish, TimeNs now);
  [[nodiscard]] Status take_rings(Program& program, Held& held, const wire::TcpWish& wish) const;
  [[nodiscard]] Status listen(Program& program, Held& held, const wire::TcpWish& wish);
  [[nodiscard]] Status seat(Program& program, Held& held, const wire::TcpWish& wish);
  [[nodiscard]] Status connect(Program& program, Held& held, const wire::TcpWish& wish, TimeNs now);
  void connect_now(Program& program, std::uint32_t handle, TimeNs now);
  [[nodiscard]] Status for_claiming(Held& held, const wire::TcpWish& wish) const;
  [[nodiscard]] static Status check_position(const Held& held, const wire::TcpWish& wish);
  [[nodiscard]] Status for_flow(Held& held, const wire::TcpWish& wish, TimeNs now);
  void shut(Program& program, std::uint32_t handle);
  void give_back(Program& program, std::uint32_t handle);
  // The agent is to write into this ring, whose pages then are there until the program closes. False: these are as many
  // as may be.
  [[nodiscard]] bool charge(Program& program, const Held& held);

  // tcp_listeners.cc
  void listens(Program& program, std::uint32_t handle, const FlowOptions& options);
  void stop(Program& program, std::uint32_t handle);
  void stop_here(Program& program, std::uint32_t handle);
  void ask_others(Program& program, std::uint32_t handle, CoreMessage message);
  void on_done(Program& program, std::uint32_t handle);
  // Of ports that programs name for connections: whether it may have this one, which is kept for it then.
  [[nodiscard]] bool claim_here(Program& program, std::uint16_t port);
  void unclaim_here(Program& program, std::uint16_t port);
  void unclaim(Program& program, Held& held);
  void on_claim(const CoreMessage& message, Program& program);
  void on_answer(const CoreMessage& message, Program& program, TimeNs now);
  [[nodiscard]] bool is_claimed_by_others(const Program& program, std::uint16_t port) const;

  void take_change(const FlowChange& change);
  void tell(Program& program, std::uint32_t handle, std::uint8_t news, wire::TcpError error = wire::TcpError::none);
  bool write_news(Program& program);
  [[nodiscard]] Result<bool> write_departures(Program& program);

  TcpServiceLimits limits_;
  std::uint32_t core_, cores_;
  Stack* stack_ = nullptr;
  std::map<std::uint64_t, Program> programs_;  // by number
  std::vector<Program*> places_;               // null: free
  std::vector<Ended> ended_;
  std::vector<std::uint64_t> to_end_;  // in this round: their flows are ended between looks at programs
  std::vector<Wake> wakes_;
  std::vector<CoreMessage> messages_;
  TcpServiceCounters counters_;
};

}  // namespace offpath::tcp
