// A program with connections, as one core of the agent knows it: its area, and the object behind each of its handles.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/full_ring.h"
#include "tcp/area/program_area.h"
#include "tcp/area/ring_blocks.h"
#include "tcp/flow/flow.h"
#include "wire/areas/tcp_area.h"
#include "wire/areas/tcp_positions.h"

namespace offpath::tcp {

// The user of a program. Ports below 1024 need privilege.
struct ProgramUser {
  std::uint32_t user = 0;
  bool privileged = false;
  bool linked = false;  // on another machine: the area is the agent's copy, so its send rings are charged as well
  std::uint32_t user_there = 0;  // linked: its user on that machine; `user` is the relay's user

  // Programs of one owner may share ports (SO_REUSEPORT).
  [[nodiscard]] std::uint64_t owner() const noexcept {
    return linked ? (std::uint64_t{user} + 1) << 32 | user_there : user;
  }
};

// The program's area as it is mapped now; empty if it was withdrawn.
using ProgramMemory = std::function<MutableBytes()>;

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
  // acknowledged and read, lower halves, when the ring of the direction was measured
  std::array<std::uint32_t, 2> marks{};
  std::array<Ring, 2> rings{}, firsts{};  // by direction; firsts: those that its first command named
  FlowId id{};
  FlowKey key{};
  std::uint32_t listener = 0;
  std::uint64_t holders = ~0ull;  // bits of the processes to wake for it
  std::uint64_t told = 0;         // bytes received that the last event has told of
  // A listener's accept slots. Those whose rings are still to be charged come last.
  std::set<std::pair<bool, std::uint32_t>> accept_slots{};
  bool costs = false;         // of an accept slot: the first of the pair
  std::uint32_t awaited = 0;  // answers still expected from other cores
  FlowOptions options{};      // claiming: of the connection to come; listener: of its connections
  std::array<Move, 2> moves{};
  std::uint32_t ring_events = 0;  // bits of wire::tcp_ring not yet delivered

  [[nodiscard]] bool is_for(IpFamily family) const noexcept { return (families & wire::tcp_for(family)) != 0; }
  [[nodiscard]] Ring& ring(wire::TcpWay way) noexcept { return rings[static_cast<std::size_t>(way)]; }
  [[nodiscard]] const Ring& ring(wire::TcpWay way) const noexcept { return rings[static_cast<std::size_t>(way)]; }
  [[nodiscard]] Move& move(wire::TcpWay way) noexcept { return moves[static_cast<std::size_t>(way)]; }
  [[nodiscard]] const Move& move(wire::TcpWay way) const noexcept { return moves[static_cast<std::size_t>(way)]; }
  [[nodiscard]] static std::uint8_t bit(wire::TcpWay way) noexcept {
    return static_cast<std::uint8_t>(1u << static_cast<unsigned>(way));
  }
  [[nodiscard]] bool is_moving(wire::TcpWay way) const noexcept { return (moving & bit(way)) != 0; }
};

// By handle, each made at its first use: one of several cores uses few of the handles.
class HeldTable {
 public:
  [[nodiscard]] Held& use(std::uint32_t handle) {
    if (handle >= held_.size()) held_.resize(handle + 1);
    if (held_[handle] == nullptr) held_[handle] = std::make_unique<Held>();
    return *held_[handle];
  }
  [[nodiscard]] Held* find(std::uint64_t handle) const noexcept {
    return handle < held_.size() ? held_[handle].get() : nullptr;
  }
  [[nodiscard]] Held& operator[](std::uint32_t handle) const noexcept { return *held_[handle]; }
  void drop(std::uint32_t handle) noexcept { held_[handle].reset(); }
  [[nodiscard]] std::uint32_t end() const noexcept { return static_cast<std::uint32_t>(held_.size()); }

 private:
  std::vector<std::unique_ptr<Held>> held_;
};

struct Program {
  Program(std::uint64_t number_, const wire::TcpAreaLayout& layout, std::uint32_t core, const ProgramUser& who_,
          ProgramMemory memory_, std::shared_ptr<RingBlocks> blocks_)
      : number(number_), area(layout, core), who(who_), memory(std::move(memory_)), blocks(std::move(blocks_)) {}

  std::uint64_t number;
  std::uint32_t place = 0;  // in ProgramTable
  ProgramArea area;
  ProgramUser who;
  ProgramMemory memory;
  std::function<TimeNs()> answer_ns{};  // of its link; empty: it has none
  HeldTable held{};
  std::uint32_t left = 0;              // of a program that has left: its handles below this one have ended
  std::array<std::size_t, 7> count{};  // of handles, by Held::Is; the count of free ones is meaningless
  std::deque<std::uint32_t> listed{};
  std::vector<std::uint32_t> processes{0};
  std::deque<std::uint32_t> departed{};  // the other processes are still to be told; each once, so the set is bounded
  // Where to look next for wakes that a process which has ended may have left undone; none: nowhere.
  std::optional<std::uint32_t> wakes_left_at{};
  std::shared_ptr<RingBlocks> blocks;
  std::uint64_t charged_bytes = 0, lent_bytes = 0;  // by this core
  std::uint8_t congestions = 0;                     // bits of the congestion control that it may choose
  FullRing commands_full{}, events_full{};
  // core 0: ports that this program connects from, and how many connections use each
  std::map<std::pair<IpFamily, std::uint16_t>, std::uint32_t> claims{};

  void set(Held& of, Held::Is is) noexcept {
    --count[static_cast<std::size_t>(of.is)];
    of.is = is;
    ++count[static_cast<std::size_t>(is)];
  }
  [[nodiscard]] std::size_t count_of(Held::Is is) const noexcept { return count[static_cast<std::size_t>(is)]; }
  // The program is told with the next events (program_events.h).
  void tell(std::uint32_t handle, std::uint8_t what, wire::TcpError error = wire::TcpError::none) {
    Held& about = held[handle];
    about.events |= what;
    if (error != wire::TcpError::none) about.error = error;
    if (!about.listed) listed.push_back(handle);
    about.listed = true;
  }
  [[nodiscard]] bool has_events() const noexcept { return !listed.empty() || !departed.empty(); }
  // An accept slot goes back to the program.
  void give_back(std::uint32_t slot) {
    Held& gives = held[slot];
    held[gives.listener].accept_slots.erase({gives.costs, slot});
    set(gives, Held::Is::free);
    tell(slot, wire::tcp_event::gone);
  }
  // Whether it has read all bytes of a flow; null: the flow is gone. A peer has to learn it if not (RFC 2525, 2.17).
  [[nodiscard]] bool has_read(std::uint32_t handle, const Flow* flow) const noexcept {
    return flow == nullptr || area.memory().empty() || area.read_position(handle) >= flow->received;
  }
};

}  // namespace offpath::tcp
