// What a program keeps of its connections behind the rings of its area: see socket_area.h. Only the program looks at
// it.
#pragma once

#include <array>

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
  std::uint64_t posted;                                               // wishes, to all cores together
  std::array<std::uint64_t, wire::tcp_cores_max> wishes, news_taken;  // by core
  std::array<Handle, wire::tcp_cores_max> first_free;
  std::uint32_t turn;   // of the cores, for the next connection
  std::uint32_t owing;  // cells that owe a wish for which there was no room
  std::array<std::uint32_t, wire::tcp_cores_max>
      lacking;                   // by core, listeners that have fewer seats there than they should
  std::uint32_t shutting;        // cells, whose windows are shut or about to be
  std::uint32_t next_look;       // of give_back(): the handle at which it goes on
  TimeNs looked_at;              // when it was called last
  std::uint32_t listeners;       // so far
  std::uint32_t processes;       // numbers in use are below
  std::uint32_t waits_for_room;  // bits of cores
};

// One of the program's processes. Behind it lie two bits for each handle: whether it holds it, and whether something
// changed about it since the process was told last. `changed` has a bit for every
// group of handles where one of those is set.
struct alignas(64) SocketArea::Process {
  enum class Is : std::uint32_t { free, alive, leaving } is;
  std::uint32_t told;  // another process took in what concerns this one
  std::uint64_t changed;
};

struct alignas(64) SocketArea::Cell : wire::TcpPositionsOut, wire::TcpPositionsIn {
  enum class Is : std::uint8_t { free, listener, seat, flow, ending } is;
  std::uint8_t told;  // news so far
  std::uint8_t owed;
  wire::TcpError error;
  bool finishing, gone;
  bool stopped;  // before its last holder let go of it, which the agent was told then
  bool listens;  // it is a listener, or was one
  std::uint16_t port, remote_port, mss;
  bool shutting;  // the agent was asked to store nothing, and not to go on
  std::uint32_t local_address, remote_address;
  std::uint32_t listener;               // of a seat
  Handle next;                          // free cells; flows that wait to be accepted
  std::uint32_t backlog;                // of a listener
  std::uint32_t round_trip_us, window;  // of a flow, as told last
  std::uint32_t serial;                 // of a listener, and of its seats: handles are used again
  std::uint64_t begun;                  // of a flow that waits: smaller than that of one begun later
  std::uint64_t read;                   // the fifth position: bytes before it the program has copied out
  // How many processes hold it, and which, if it is one. Which of them the agent wakes, or every_process.
  std::uint16_t holders, holder, woken;
  std::uint16_t lacks;  // of a listener: bits of the cores on which it has fewer seats than it should
  FlowWishes wishes;
  // Of the receive ring of this handle, whatever becomes of it: bytes that may have pages, and the flow's `received`
  // (its lower half) when they were counted.
  std::uint32_t used, counted;
};

// What a listener has on one core: how many seats and flows that wait to be accepted, and the latter.
struct SocketArea::Seats {
  std::uint32_t count;
  Handle first_waiting, last_waiting;
};

// Of all processes. Who dies with it leaves positions that were not published, which are as if they had not been
// written, and perhaps a count of holders that is one too many.
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
