// The program's own records of its connections, behind the rings of its area: see socket_area.h. The agent does not
// read them.
#pragma once

#include <array>

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
  owed_options = 32
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
  std::uint32_t listeners;                                 // made so far
};

struct alignas(64) SocketArea::Cell : wire::TcpPositionsOut, wire::TcpPositionsIn {
  enum class Is : std::uint8_t { free, listener, accept_slot, flow, ending } is;
  std::uint8_t told;  // events so far
  std::uint8_t owed;
  wire::TcpError error;
  bool finishing, gone;
  bool stopped;  // stopped before its last holder released it; the agent was told then
  bool listens;  // it is or was a listener
  std::uint16_t port, remote_port, mss;
  bool shutting;  // the agent was asked to shut the window, and not to open it again
  std::uint32_t local_address, remote_address;
  std::uint32_t listener;               // of an accept slot
  Handle next;                          // free cells; flows that wait to be accepted
  std::uint32_t backlog;                // of a listener
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
};

// A listener's state on one core: the numbers of accept slots and of waiting flows, and the latter's list.
struct SocketArea::AcceptSlots {
  std::uint32_t count;
  Handle first_waiting, last_waiting;
};

// A lock for all processes. A process that dies with it leaves unpublished positions, which count as not written, and
// perhaps a count of holders that is one too high.
class SocketArea::Lock {
 public:
  explicit Lock(const SocketArea& area) noexcept : shared_(*area.shared_) {
    if (!shared_.lock.take()) area.count_holders();
  }
  ~Lock() { shared_.lock.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Shared& shared_;
};

}  // namespace offpath::channel
