// The program's own records of its connections, behind the rings of its area: see socket_area.h. The agent does not
// read them.
#pragma once

#include <array>
#include <cstddef>

#include "connections/area_rings.h"
#include "connections/process_mutex.h"
#include "connections/socket_area.h"
#include "wire/areas/tcp_positions.h"

namespace offpath::channel {

inline constexpr SocketArea::Handle nobody = ~0u;
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
inline constexpr std::uint16_t every_process = 0xffff;

struct SocketArea::Shared {
  ProcessMutex lock;
  AreaRingsState rings;
  std::array<Handle, wire::tcp_cores_max> first_free;
  std::uint32_t turn;                                      // the core for the next connection
  std::uint32_t owing;                                     // cells whose command found no room
  std::array<std::uint32_t, wire::tcp_cores_max> lacking;  // for each core, listeners with too few accept slots there
  std::uint32_t shutting;                                  // cells whose windows are shut or about to be
  std::uint32_t next_look;                                 // the handle at which give_back() continues
  TimeNs looked_at;                                        // time of its last call
  std::uint32_t uses_pool;                                 // flows may have rings of the pool
  std::uint32_t listeners;                                 // made so far
  SocketOptions options;                                   // of the process that made the area
};

// asked: for the larger ring `Step::next`. taken: it is the present ring, and the one before still holds bytes.
// leaving: the first ring was asked for. `Step::next` is the present one; `Step::before` is for bytes before `from`, if
// these have not come.
enum class SocketArea::Growth : std::uint8_t { none, asked, taken, leaving };

// From one ring of a direction to the next one: bytes from `from` on are in the larger ring.
struct SocketArea::Step {
  std::uint64_t from;
  std::uint64_t posted;  // commands of the core before this one
  Place before, next;
};

// Of a flow with rings of the pool: how long its streams have stood still.
struct SocketArea::Rest {
  std::uint64_t moved;  // the sum of its positions when give_back() looked last
  TimeNs since;         // it was so much since then; 0: it has not looked
};

struct alignas(64) SocketArea::Cell : wire::TcpPositionsOut, wire::TcpPositionsIn {
  enum class Is : std::uint8_t { free, listener, accept_slot, flow, ending } is;
  std::uint8_t told;  // events so far
  std::uint8_t owed;
  wire::TcpError error;
  bool finishing, gone;
  bool stopped;                          // stopped before its last holder released it; the agent was told then
  bool listens;                          // it is or was a listener
  std::uint16_t port, remote_port, mss;  // the peer's address: remote_address()
  bool shutting;                         // the agent was asked to shut the window, and not to open it again
  std::uint8_t copying;                  // bits of the directions in which a call copies without the lock; see Turn
  union {
    std::uint32_t listener;   // of an accept slot
    std::uint32_t out_place;  // of a flow whose ring is from the pool
  };
  Handle next;  // free cells; flows that wait to be accepted
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
  // The receive ring of this handle, which stays when the handle is reused: bytes that may have pages, and the flow's
  // `received` (its lower half) when they were counted.
  std::uint32_t used, counted;
  bool has_turns;        // likewise: its TurnLocks are made
  std::uint8_t growths;  // two bits for each direction: a Growth; `postponed`, `falling_back`
  std::uint8_t logs[2];  // the sizes of its present rings, as powers of two

  [[nodiscard]] std::uint8_t log2(Way way) const noexcept { return logs[static_cast<int>(way)]; }
  [[nodiscard]] std::uint32_t bytes(Way way) const noexcept { return 1u << log2(way); }
  [[nodiscard]] Place place(Way way) const noexcept { return {way == Way::out ? out_place : in_place, log2(way)}; }
  void set_place(Way way, Place place) noexcept {
    (way == Way::out ? out_place : in_place) = place.unit;
    logs[static_cast<int>(way)] = place.log2;
  }
  [[nodiscard]] Growth growth(Way way) const noexcept {
    return static_cast<Growth>(growths >> 2 * static_cast<int>(way) & 3);
  }
  void set_growth(Way way, Growth growth) noexcept {
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
    return growth(Way::out) == Growth::asked || growth(Way::out) == Growth::leaving;
  }
  [[nodiscard]] std::uint64_t room_to_send() const noexcept {
    return is_between_rings() ? 0 : bytes(Way::out) - unacknowledged();
  }
};

// A listener's state on one core: the numbers of accept slots and of waiting flows, and the latter's list.
struct SocketArea::AcceptSlots {
  std::uint32_t count;
  Handle first_waiting, last_waiting;
};

// A lock for all processes. A process that dies with it leaves unpublished positions, which count as not written, and
// perhaps a count of holders that is one too high. The agent is told of the commands after the unlock.
class SocketArea::Lock {
 public:
  explicit Lock(const SocketArea& area) noexcept : area_(area) { lock(); }
  ~Lock() { unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  void lock() noexcept {
    if (!area_.shared_->lock.take()) {
      area_.count_holders();
      area_.count_rings();
    }
    posted_ = area_.rings_.posted();
  }
  void unlock() noexcept {
    const bool tells = area_.rings_.posted() != posted_;
    area_.shared_->lock.unlock();
    if (tells) area_.rings_.tell_agent();
  }

 private:
  const SocketArea& area_;
  std::uint64_t posted_ = 0;
};

// Two locks of each handle that was used, one for each direction, on cache lines of their own.
struct alignas(64) SocketArea::TurnLock : ProcessMutex {};
inline constexpr std::size_t short_copy = 1024;  // takes about as long as the locks that it would need

// A call's turn to copy in one direction of a flow. A short copy is made under the area's lock. For a longer one the
// call gives that lock up and takes the direction's, so only calls in the same direction of the same flow wait for it.
// Whoever dies in between has published nothing. Order of locks: out, in, the area's.
class SocketArea::Turn {
 public:
  Turn(const SocketArea& area, Handle handle, Way way) noexcept : area_(area), handle_(handle), way_(way) {}
  ~Turn() {
    if (own_ != nullptr) own_->unlock();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Gets the turn for a copy of that many bytes of a valid handle. True: the area's lock was given up meanwhile, so the
  // caller looks again.
  bool wait(Lock& lock, std::size_t bytes) noexcept {
    if (own_ != nullptr || (bytes <= short_copy && (area_.cell(handle_).copying & bit()) == 0)) return false;
    lock.unlock();
    own_ = &area_.turn_lock(handle_, way_);
    own_->lock();
    lock.lock();
    area_.cell(handle_).copying &= static_cast<std::uint8_t>(~bit());  // of a process that died
    return true;
  }
  // True: the area's lock was given up meanwhile. The flow may have ended, but its handle is still this flow's.
  template <class Copy>
  bool copy(Lock& lock, const Copy& bytes) noexcept {
    if (own_ == nullptr) return bytes(), false;
    area_.cell(handle_).copying |= bit();
    lock.unlock();
    bytes();
    lock.lock();
    area_.cell(handle_).copying &= static_cast<std::uint8_t>(~bit());
    return true;
  }

 private:
  [[nodiscard]] std::uint8_t bit() const noexcept { return static_cast<std::uint8_t>(1u << static_cast<int>(way_)); }
  const SocketArea& area_;
  const Handle handle_;
  const Way way_;
  TurnLock* own_ = nullptr;
};

}  // namespace offpath::channel
