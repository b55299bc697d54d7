// The program's own records of its connections, behind the agent's rings of the area (wire/areas/tcp_area.h): where
// they lie, and their contents. The agent does not read them. All processes of the program share them, and any of them
// may be killed at any store; so each class of this room says in which order it writes. All calls are under the area's
// lock, except where a comment says otherwise.
//
//   what                     for
//   SocketsShared            the whole area
//   SocketCell               each handle: all that a call on an established connection reads
//   AcceptSlots              each listener and core
//   TurnLock                 each handle and direction
//   ProcessTable             each process (process_table.h)
//   RingStep                 each handle and direction
//   address of the peer      each handle
//   Rest                     each handle
//   HandleSet                handles that owe commands, listeners that lack accept slots, handles with memory
//   words of RingPool        memory for larger rings (ring_pool.h)
//   memory of the owner      SocketOptions::kept_bytes
//   first rings              each handle and direction
//   memory of larger rings   SocketOptions::pool_bytes
//
// Read this first in src/connections/area, then area_rings.h, process_table.h, flow_rings.h, idle_memory.h,
// owed_commands.h, free_handles.h, backlogs.h, handle_holders.h and copy_turn.h.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include "base/bytes.h"
#include "base/clock.h"
#include "connections/area/area_rings.h"
#include "connections/area/flow_settings.h"
#include "connections/area/handle_set.h"
#include "connections/process_mutex.h"
#include "wire/areas/tcp_area.h"
#include "wire/areas/tcp_positions.h"

namespace offpath::channel {

struct SocketOptions {
  std::uint32_t flows = 1024;
  std::uint32_t send_bytes = 256 << 10,
                receive_bytes = 256 << 10;  // sizes of a flow's rings; powers of two. Memory is taken as it is used
  // Memory for larger rings, for flows that fill theirs within a round trip; a multiple of RingPool::word_bytes. 0:
  // rings stay as they are
  std::uint64_t pool_bytes = 0;
  std::uint64_t kept_bytes = 0;  // memory that the owner shares between all processes: SocketArea::kept()

  friend bool operator==(const SocketOptions&, const SocketOptions&) = default;
};

using Way = wire::TcpWay;  // a direction of a flow
inline constexpr std::array both_ways{Way::out, Way::in};

inline constexpr std::uint32_t no_handle = ~0u;
inline constexpr std::uint16_t every_process = 0xffff;

// Commands that a handle owes the agent: SocketCell::owed.
enum Owed : std::uint8_t {
  owed_allow = 1,
  owed_finish = 2,
  owed_release = 4,
  owed_abort = 8,
  owed_holders = 16,
  owed_options = 32,
  owed_larger_out = 64,  // a `replace` by a larger ring, as far as there is memory for it
  owed_larger_in = 128
};

struct SocketsShared {
  ProcessMutex lock;
  AreaRingsState rings;
  std::array<std::uint32_t, wire::tcp_cores_max> first_free;
  std::uint32_t turn;                                      // the core for the next connection
  std::array<std::uint32_t, wire::tcp_cores_max> lacking;  // for each core, listeners with too few accept slots there
  std::uint32_t shutting;                                  // cells whose windows are shut or about to be
  // the handles at which passes over sets of handles continue
  std::uint32_t next_look, next_owing, next_lacking, next_undelivered;
  TimeNs looked_at;          // when IdleMemory began to look last
  std::uint32_t uses_pool;   // flows may have rings of the pool
  std::uint32_t unsettled;   // some handles owe commands or lack accept slots
  std::uint32_t has_memory;  // handles may have memory to give back
  std::uint32_t listeners;   // made so far
  SocketOptions options;     // of the process that made the area

  [[nodiscard]] bool is_unsettled() const noexcept { return read(unsettled); }  // without the lock
  void set_unsettled(bool is) noexcept { set(unsettled, is); }
  // A flag that calls without the lock read.
  [[nodiscard]] static bool read(const std::uint32_t& flag) noexcept {
    return std::atomic_ref(const_cast<std::uint32_t&>(flag)).load(std::memory_order_relaxed) != 0;
  }
  static void set(std::uint32_t& flag, bool is) noexcept {
    std::atomic_ref(flag).store(is ? 1 : 0, std::memory_order_relaxed);
  }
};

// Where a ring of a flow is.
struct RingPlace {
  std::uint32_t unit;  // of the pool, if the ring is larger than the flow's first one
  std::uint8_t log2;   // of its bytes
};

// Whether another ring takes the place of a direction's present one. asked: the larger ring `RingStep::next` was asked
// for. taken: it is the present ring, and the one before still holds bytes. leaving: the first ring was asked for.
// `RingStep::next` is the present one; `RingStep::before` is for bytes before `from`, if these have not come.
enum class RingGrowth : std::uint8_t { none, asked, taken, leaving };

// From one ring of a direction to the next one: bytes from `from` on are in the larger ring.
struct RingStep {
  std::uint64_t from;
  std::uint64_t posted;  // commands of the core before this one
  RingPlace before, next;
};

// Of a flow with memory to give back: how long its streams have stood still.
struct Rest {
  std::uint64_t moved;  // the sum of its positions when IdleMemory looked last
  TimeNs since;         // it was so much since then; 0: it has not looked
};

// A listener's state on one core: the numbers of accept slots and of waiting flows, and the latter's list.
struct AcceptSlots {
  std::uint32_t count;
  std::uint32_t first_waiting, last_waiting;
};

// Two locks of each handle that was used, one for each direction, on cache lines of their own: copy_turn.h.
struct alignas(64) TurnLock : ProcessMutex {};

struct alignas(64) SocketCell : wire::TcpPositionsOut, wire::TcpPositionsIn {
  enum class Is : std::uint8_t { free, listener, accept_slot, flow, ending } is;
  std::uint8_t told;  // events so far
  std::uint8_t owed;
  wire::TcpError error;
  bool finishing, gone;
  bool stopped;                          // stopped before its last holder released it; the agent was told then
  bool listens;                          // it is or was a listener
  std::uint16_t port, remote_port, mss;  // the peer's address: SocketRecords::remote_address()
  bool shutting;                         // the agent was asked to shut the window, and not to open it again
  std::uint8_t copying;                  // bits of the directions in which a call copies without the lock: CopyTurn
  union {
    std::uint32_t listener;   // of an accept slot
    std::uint32_t out_place;  // of a flow whose ring is from the pool
  };
  std::uint32_t next;  // free cells; flows that wait to be accepted
  union {
    std::uint32_t backlog;   // of a listener
    std::uint32_t in_place;  // as out_place
  };
  std::uint32_t round_trip_us, window;  // of a flow, from its last event
  std::uint32_t serial;                 // of a listener and its accept slots, because handles are reused
  std::uint64_t begun;                  // of a waiting flow: smaller than that of later flows
  std::uint64_t read;                   // the fifth position: the program has copied out the bytes before it
  // The number of processes that hold it, and the holder if there is one. The process that the agent wakes, or
  // every_process.
  std::uint16_t holders, holder, woken;
  std::uint16_t lacks;  // of a listener: bits of the cores on which it has too few accept slots
  FlowSettings settings;
  // The first rings of this handle, which stay when the handle is reused: by direction, bytes that may have pages, and
  // the flow's `offered` or `received` (its lower half) when they were counted.
  std::uint32_t used[2], counted[2];
  bool has_turns;        // likewise: its TurnLocks are made
  std::uint8_t growths;  // two bits for each direction: a RingGrowth; `postponed`, `falling_back`
  std::uint8_t logs[2];  // the sizes of its present rings, as powers of two

  [[nodiscard]] std::uint8_t log2(Way way) const noexcept { return logs[static_cast<int>(way)]; }
  [[nodiscard]] std::uint32_t bytes(Way way) const noexcept { return 1u << log2(way); }
  [[nodiscard]] RingPlace place(Way way) const noexcept { return {way == Way::out ? out_place : in_place, log2(way)}; }
  void set_place(Way way, RingPlace place) noexcept {
    (way == Way::out ? out_place : in_place) = place.unit;
    logs[static_cast<int>(way)] = place.log2;
  }
  [[nodiscard]] RingGrowth growth(Way way) const noexcept {
    return static_cast<RingGrowth>(growths >> 2 * static_cast<int>(way) & 3);
  }
  void set_growth(Way way, RingGrowth growth) noexcept {
    const int shift = 2 * static_cast<int>(way);
    growths = static_cast<std::uint8_t>((growths & ~(3 << shift)) | static_cast<int>(growth) << shift);
  }
  // The agent has advised a larger ring while a call copies into the present one.
  static constexpr std::uint8_t postponed = 16;
  // The window is being shut so that the first ring for incoming bytes can take the place of a larger one.
  static constexpr std::uint8_t falling_back = 32;
  [[nodiscard]] bool falls_back() const noexcept { return (growths & falling_back) != 0; }
  void set_falls_back(bool falls) noexcept {
    growths = static_cast<std::uint8_t>(falls ? growths | falling_back : growths & ~falling_back);
  }
  // Whether it is not known which ring the next bytes to send go into.
  [[nodiscard]] bool is_between_rings() const noexcept {
    return growth(Way::out) == RingGrowth::asked || growth(Way::out) == RingGrowth::leaving;
  }
  [[nodiscard]] std::uint64_t room_to_send() const noexcept {
    return is_between_rings() ? 0 : bytes(Way::out) - unacknowledged();
  }
  [[nodiscard]] static constexpr std::uint8_t bit(Way way) noexcept {
    return static_cast<std::uint8_t>(1u << static_cast<int>(way));
  }
  [[nodiscard]] bool is_copied(Way way) const noexcept { return (copying & bit(way)) != 0; }
  // Whether the handle names something that a process may hold.
  [[nodiscard]] bool is_named() const noexcept { return is == Is::flow || is == Is::listener; }
};
static_assert(sizeof(SocketCell) == 128);

// Where the records lie. A view of the memory: copies are equal.
class SocketRecords {
 public:
  using Handle = std::uint32_t;
  enum class Set : std::uint8_t { owing, lacking, memory };

  [[nodiscard]] static wire::TcpAreaLayout layout_of(const SocketOptions& options) noexcept;
  // `memory` has the layout's length.
  SocketRecords(MutableBytes memory, const SocketOptions& options) noexcept;
  // For the process that makes the area. The memory is zeroed.
  void make(const SocketOptions& options) const noexcept;

  [[nodiscard]] MutableBytes memory() const noexcept { return memory_; }
  [[nodiscard]] const wire::TcpAreaLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] std::uint32_t flows() const noexcept { return layout_.flows; }
  [[nodiscard]] SocketsShared& shared() const noexcept { return *at<SocketsShared>(layout_.own()); }
  [[nodiscard]] SocketCell& cell(Handle handle) const noexcept { return cells_[handle]; }
  [[nodiscard]] AcceptSlots& accept_slots(Handle listener, std::uint32_t core) const noexcept {
    return accept_slots_[std::size_t{listener} * wire::tcp_cores_max + core];
  }
  [[nodiscard]] TurnLock& turn_lock(Handle handle, Way way) const noexcept {
    return turn_locks_[2 * std::size_t{handle} + static_cast<std::size_t>(way)];
  }
  [[nodiscard]] RingStep& step(Handle handle, Way way) const noexcept {
    return steps_[2 * std::size_t{handle} + static_cast<std::size_t>(way)];
  }
  [[nodiscard]] wire::IpAddress& remote_address(Handle handle) const noexcept { return remote_addresses_[handle]; }
  [[nodiscard]] Rest& rest(Handle handle) const noexcept { return rests_[handle]; }
  [[nodiscard]] std::byte* processes() const noexcept { return processes_; }
  [[nodiscard]] HandleSet set(Set set) const noexcept {
    return {sets_ + static_cast<std::uint64_t>(set) * HandleSet::bytes(flows()), flows()};
  }
  [[nodiscard]] std::span<std::uint64_t> pool_words() const noexcept { return pool_words_; }
  [[nodiscard]] MutableBytes kept() const noexcept { return kept_; }

  [[nodiscard]] std::uint32_t first_bytes(Way way) const noexcept {
    return way == Way::out ? send_bytes_ : receive_bytes_;
  }
  [[nodiscard]] RingPlace first_place(Way way) const noexcept {
    return {0, static_cast<std::uint8_t>(std::countr_zero(first_bytes(way)))};
  }
  [[nodiscard]] MutableBytes first_ring(Handle handle, Way way) const noexcept {
    const std::uint64_t at = rings_at_ + handle * (std::uint64_t{send_bytes_} + receive_bytes_);
    return memory_.subspan(at + (way == Way::in ? send_bytes_ : 0), first_bytes(way));
  }
  // `at`: from the beginning of the pool's memory on.
  [[nodiscard]] MutableBytes pool_ring(std::uint64_t at, std::uint32_t bytes) const noexcept {
    return memory_.subspan(pool_at_ + at, bytes);
  }
  [[nodiscard]] std::uint64_t offset_of(MutableBytes ring) const noexcept {
    return static_cast<std::uint64_t>(ring.data() - memory_.data());
  }

  // Shows the position to the agent, too.
  void set_read(Handle handle, std::uint64_t position) const noexcept {
    cell(handle).read = position;
    auto& shown = *reinterpret_cast<std::uint64_t*>(memory_.data() + layout_.reads() + handle * sizeof(std::uint64_t));
    std::atomic_ref<std::uint64_t>(shown).store(position, std::memory_order_release);
  }
  // Gives the agent a command, for which there is room.
  void post(AreaRings& rings, std::uint32_t core, const wire::TcpCommand& command) const noexcept {
    rings.post(core, command, wire::concerns_flow(command.kind) ? cell(command.handle).read : 0);
  }

 private:
  template <class Record>
  [[nodiscard]] Record* at(std::uint64_t offset) const noexcept {
    return std::launder(reinterpret_cast<Record*>(memory_.data() + offset));
  }

  MutableBytes memory_;
  wire::TcpAreaLayout layout_;
  std::uint32_t send_bytes_, receive_bytes_;
  std::uint64_t rings_at_, pool_at_;
  SocketCell* cells_;
  AcceptSlots* accept_slots_;
  TurnLock* turn_locks_;
  RingStep* steps_;
  wire::IpAddress* remote_addresses_;
  Rest* rests_;
  std::byte* processes_;
  std::byte* sets_;
  std::span<std::uint64_t> pool_words_;
  MutableBytes kept_;
};

}  // namespace offpath::channel
