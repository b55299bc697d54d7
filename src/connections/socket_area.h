// The program's end of its TCP connections: handles, their cells, and the two rings (wire/areas/tcp_area.h). All of it
// lies in the area, behind the rings, under a lock shared by processes: a process that inherits the mapping by fork
// continues with it. Nothing blocks.
//
// A call is a lock, a few stores and a check whether the agent sleeps. Payload goes straight into the flow's ring,
// and out of it, more than 1 KiB without that lock: threads that copy so wait for each other only in the same
// direction of the same flow. Any caller takes in the agent's events, for all processes. A process that is killed
// within a call leaves at worst its current flow unchanged.
//
// Several processes: each has a number, and 0 made the area. The holders of a handle are the process that made it, or
// accepted it from a listener, and children that have it from the start (add_process); close() and abort() end it when
// the last holder has released it. Changes are reported to each holder.
#pragma once

#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "connections/area_rings.h"
#include "connections/process_table.h"
#include "connections/ring_pool.h"
#include "wire/areas/tcp_area.h"

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

// Options that a program may set for a flow at any time.
struct FlowSettings {
  bool gathers = false;  // Nagle's algorithm: no small segment while another is unacknowledged
  std::uint8_t keepalive_probes = 9;
  std::uint16_t keepalive_idle_s = 0, keepalive_interval_s = 75;  // idle 0: no keepalive
  std::uint32_t user_timeout_ms = 0;                              // without an acknowledgement; 0: the agent's
  friend bool operator==(const FlowSettings&, const FlowSettings&) = default;
};

using Way = wire::TcpWay;  // a direction of a flow

class SocketArea {
 public:
  using Handle = std::uint32_t;
  struct Endpoint {
    wire::IpAddress address;
    std::uint16_t port = 0;
  };
  // Whether calls would block, and the state of a flow.
  struct Look {
    bool connected;
    bool readable, writable;  // after the end or a failure both are true: the calls report it. See is_writable()
    bool finished;            // the peer has finished sending
    bool closed;              // both sides have finished, or there is an error: no more data either way
    wire::TcpError error;
    Endpoint local, remote;  // of a listener, the port alone
    std::uint64_t unread, unacknowledged;
    std::uint64_t received, acknowledged;   // totals
    std::uint32_t send_ring, receive_ring;  // bytes of the present rings
    std::uint64_t room;                     // bytes that send() takes
    std::uint32_t round_trip_us, window;    // as of the last event; window: of congestion, bytes
    std::uint16_t mss;                      // 0: unknown
  };

  [[nodiscard]] static wire::TcpAreaLayout layout_of(const SocketOptions& options) noexcept;
  // `memory` has the layout's length, is zeroed, and outlives this. `wake` makes a sleeping core of the agent look.
  using Wake = AreaRings::Wake;
  SocketArea(MutableBytes memory, const SocketOptions& options, Wake wake);
  // Whether an area of these options lies in this memory, which has the layout's length.
  [[nodiscard]] static bool lies_in(MutableBytes memory, const SocketOptions& options) noexcept;
  // The same area in another process that maps it, which has this number.
  SocketArea(MutableBytes memory, const SocketOptions& options, Wake wake, std::uint32_t process);
  SocketArea(const SocketArea&) = delete;
  SocketArea& operator=(const SocketArea&) = delete;
  // Called after the agent has opened the area and announced its cores, before the area is used.
  void spread();
  [[nodiscard]] std::uint32_t cores() const noexcept { return rings_.cores(); }
  [[nodiscard]] std::uint32_t core_of(Handle handle) const noexcept { return cores() == 1 ? 0 : handle % cores(); }

  // The agent's own address; unspecified: it has none of this family. The families of which it has one, as flags.
  [[nodiscard]] wire::IpAddress own_address(wire::IpFamily family) const noexcept;
  [[nodiscard]] std::uint16_t families() const noexcept {
    const auto has = [this](wire::IpFamily family) { return !own_address(family).is_unspecified(); };
    return static_cast<std::uint16_t>((has(wire::IpFamily::v4) ? wire::tcp_for_ipv4 : 0) |
                                      (has(wire::IpFamily::v6) ? wire::tcp_for_ipv6 : 0));
  }

  // look() shows whether the agent granted it, and the port. `flags`: the families, at least one of wire::tcp_for_ipv4
  // and tcp_for_ipv6; tcp_no_delay, tcp_reuse_port, tcp_reuse_address.
  [[nodiscard]] Result<Handle> bind(std::uint16_t port, std::uint16_t flags = wire::tcp_families);  // 0: any port
  // `bound`: a handle of bind() that has the port.
  [[nodiscard]] Result<Handle> listen(std::uint16_t port, std::uint32_t backlog,
                                      std::uint16_t flags = wire::tcp_families, Handle bound = wire::tcp_no_handle);
  // From the agent's own address of the same family.
  [[nodiscard]] Result<Handle> connect(Endpoint remote, std::uint16_t local_port = 0, std::uint16_t flags = 0);
  // These return would_block instead of waiting.
  [[nodiscard]] Result<Handle> accept(Handle listener);
  [[nodiscard]] Result<std::size_t> send(Handle flow, Bytes bytes);  // the number of bytes taken
  // How bytes are read: `skip` bytes beyond the read position; they stay unread; they are not copied, and only the size
  // of `bytes` counts.
  struct Reading {
    std::uint64_t skip = 0;
    bool peeks = false, discards = false;
  };
  [[nodiscard]] Result<std::size_t> receive(Handle flow, MutableBytes bytes) {
    return receive(flow, bytes, Reading{});
  }  // 0: the peer has finished sending
  [[nodiscard]] Result<std::size_t> receive(Handle flow, MutableBytes bytes, const Reading& reading);
  [[nodiscard]] Status finish(Handle flow);  // sends the end of the stream
  // Sent data still goes out. The handle is invalid afterwards, once calls of this process's other threads have copied.
  void close(Handle handle) { let_go(handle, false); }
  void abort(Handle flow) { let_go(flow, true); }
  // For all processes that hold it, which keep holding it: ends a listener, or abandons a connection that is not
  // established. False: it is neither.
  bool stop(Handle handle);
  [[nodiscard]] Result<Look> look(Handle handle);
  // The state as of the events taken in so far; asking changes nothing.
  [[nodiscard]] Result<Look> known(Handle handle) const;
  void set_flow_settings(Handle flow, const FlowSettings& settings);

  // Without the lock, so possibly outdated: whether the agent has sent an event, and whether take_changed() has a
  // result.
  [[nodiscard]] bool has_events() const noexcept;
  [[nodiscard]] bool has_changed() const noexcept;
  // A connection or listener that this process holds and that had an event since its last mention here, whichever
  // process took the event in.
  [[nodiscard]] std::optional<Handle> take_changed();
  // Whether bytes of any connection, including closed ones, are unacknowledged.
  [[nodiscard]] bool undelivered();

  // Adds a process, which holds everything that this one holds, or only `handles`. Error::no_space: the limit is
  // reached.
  [[nodiscard]] Result<std::uint32_t> add_process();
  [[nodiscard]] Result<std::uint32_t> add_process(std::span<const Handle> handles);
  void drop_process(std::uint32_t process);                            // it has ended, or was never started
  void become(std::uint32_t process) noexcept { process_ = process; }  // in a forked child
  [[nodiscard]] std::uint32_t process() const noexcept { return process_; }
  [[nodiscard]] bool holds(Handle handle);
  // This process closes everything that it holds, except for flows to or from which a thread copies: these are closed
  // when the process has ended. True: no other process is left.
  bool depart();
  [[nodiscard]] MutableBytes kept() const noexcept;  // zeroed at the start

  // Takes in the agent's events; true if there were any.
  bool take_in();
  // Gives pages of receive rings back to the machine: of closed connections, and of those that had nothing to read and
  // received nothing between two calls. Flows whose streams stand still for longer get their first rings again. Call it
  // about once a second when idle. False: nothing to do until more data is received, or uses_pool().
  bool give_back(TimeNs now);
  // Without the lock: whether a flow may have a larger ring than its first one.
  [[nodiscard]] bool uses_pool() const noexcept;
  // The agent is asked for events about pages that go back: until these are taken in, their connections receive
  // nothing.
  [[nodiscard]] bool is_giving_back() const noexcept;
  // Before a sleep until the agent wakes this program. False: there are events already.
  [[nodiscard]] bool fall_asleep();
  void stay_awake();  // no thread of this process sleeps any more

 private:
  struct Shared;
  struct Cell;
  struct Place {
    std::uint32_t unit;  // of the pool, if the ring is larger than the flow's first one
    std::uint8_t log2;   // of its bytes
  };
  struct Step;
  struct Rest;
  enum class Growth : std::uint8_t;
  struct AcceptSlots;
  class Lock;
  struct TurnLock;
  class Turn;
  [[nodiscard]] Result<Look> known_locked(Handle handle) const;

  [[nodiscard]] Cell& cell(Handle handle) const noexcept;
  [[nodiscard]] Result<Cell*> find(Handle handle, bool listener = false) const;
  [[nodiscard]] Result<std::uint32_t> new_process() noexcept;
  void hold(std::uint32_t number, Handle handle) noexcept;
  void hold_with(std::uint32_t number, Handle handle) noexcept;
  void let_go(Handle handle, bool abort);
  void let_go(std::uint32_t number, Handle handle, bool abort) noexcept;
  void let_go_of_all(std::uint32_t number) noexcept;
  void name_holders(Handle handle) noexcept;
  void count_holders() const noexcept;
  [[nodiscard]] std::uint32_t first_bytes(Way way) const noexcept {
    return way == Way::out ? send_bytes_ : receive_bytes_;
  }
  [[nodiscard]] Place first_place(Way way) const noexcept;
  [[nodiscard]] bool is_of_pool(Place place, Way way) const noexcept { return 1u << place.log2 > first_bytes(way); }
  [[nodiscard]] std::array<Step, 2>& steps(Handle handle) const noexcept;
  [[nodiscard]] Rest& rest(Handle handle) const noexcept;
  [[nodiscard]] wire::IpAddress& remote_address(Handle handle) const noexcept;
  [[nodiscard]] MutableBytes ring_at(Handle handle, Way way, Place place) const noexcept;
  [[nodiscard]] MutableBytes ring(Handle handle, Way way) const noexcept;
  [[nodiscard]] MutableBytes ring_before(Handle handle, Way way) const noexcept;
  [[nodiscard]] std::uint64_t bytes_before(Handle handle, std::uint64_t at, std::uint64_t count) const noexcept;
  bool ask_for_rings(Handle handle) noexcept;
  void ask_for_larger_ring(Handle handle, Way way) noexcept;
  void leave_ring(Handle handle, Way way) noexcept;
  void name_ring(Handle handle, Way way, Place next, std::uint64_t position) noexcept;
  [[nodiscard]] bool may_leave_ring(Handle handle, Way way) const noexcept;
  [[nodiscard]] Growth before_leaving(Handle handle, Way way) const noexcept;
  [[nodiscard]] bool fall_back(Handle handle, TimeNs now, TimeNs idle) noexcept;
  void on_shut(const wire::TcpEvent& event) noexcept;
  void take_rings(const wire::TcpEvent& event) noexcept;
  void end_step(Handle handle, Way way) noexcept;
  void free_ring(Handle handle, Way way, Place place) noexcept;
  void free_rings(Handle handle) noexcept;
  void count_rings() const noexcept;
  void remove_pages(MutableBytes ring) const noexcept;
  [[nodiscard]] std::uint32_t next_core() noexcept;
  [[nodiscard]] std::uint32_t ring_of(Handle handle) const noexcept;
  [[nodiscard]] TurnLock& turn_lock(Handle handle, Way way) const noexcept;
  [[nodiscard]] AcceptSlots& accept_slots(Handle listener, std::uint32_t core) const noexcept;
  [[nodiscard]] Handle oldest_waiting(Handle listener) const noexcept;
  [[nodiscard]] std::uint32_t accept_slots_of_core(const Cell& listener) const noexcept;
  [[nodiscard]] std::optional<Handle> take_handle(std::uint32_t core) noexcept;
  void free_handle(Handle handle) noexcept;
  void name_rings(Handle handle, wire::TcpCommand& command) const noexcept;
  void set_read(Handle handle, std::uint64_t position) noexcept;
  // A command of a flow or listener; `core` is that of its ring.
  void post(std::uint32_t core, const wire::TcpCommand& command) noexcept;
  void owe(Handle handle, std::uint8_t what) noexcept;
  void forgive(Handle handle, std::uint8_t what) noexcept;
  void settle() noexcept;
  bool settle(Handle handle) noexcept;
  [[nodiscard]] Result<std::size_t> room_to_send(Handle flow, std::size_t bytes);
  [[nodiscard]] Result<Handle> take_port(const wire::TcpCommand& command, std::uint32_t backlog);
  void fill_accept_slots(Handle listener) noexcept;
  void fill_accept_slots(Handle listener, std::uint32_t core) noexcept;
  void set_lacks(Cell& listener, std::uint32_t core, bool lacks) noexcept;
  [[nodiscard]] bool may_fill_accept_slots() const noexcept;
  void dismiss(Handle listener) noexcept;
  [[nodiscard]] static bool is_accept_slot_of(const Cell& slot, const Cell& listener) noexcept;
  void mark_changed(Handle handle) noexcept;
  void clear(Handle handle) noexcept;
  void take(const wire::TcpEvent& event) noexcept;
  bool take_all() noexcept;
  void end(Handle handle, bool abort) noexcept;
  [[nodiscard]] bool count_used(Handle handle) const noexcept;
  [[nodiscard]] bool give_pages_back(Handle handle) noexcept;
  void shut(Handle handle) noexcept;
  void set_shutting(Handle handle, bool shutting) noexcept;
  void free_pages(Handle handle) noexcept;

  MutableBytes memory_;
  wire::TcpAreaLayout layout_;
  std::uint32_t send_bytes_, receive_bytes_;
  std::uint64_t kept_bytes_, kept_at_, rings_at_, pool_at_;
  mutable RingPool pool_;
  std::uint32_t process_ = 0;
  Shared* shared_;
  AreaRings rings_;
  ProcessTable processes_;
};

}  // namespace offpath::channel
