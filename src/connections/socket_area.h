// The program's end of its TCP connections: handles, what they stand for, and the two rings (wire/areas/tcp_area.h).
// All of it lies in the area, behind the rings, under a lock that processes share: whoever inherits the mapping by a
// fork goes on with it. Nothing blocks.
//
// A call is a lock, a few stores and a look at whether the agent sleeps. Payload goes straight into the flow's ring,
// and out of it. What the agent tells is taken in by whoever looks, for all. A process that is killed within a call
// leaves at worst the flow it was at as it was before.
//
// Several processes. Each has a number, 0 is who made the area. A handle is held by whoever made it, or took it from a
// listener, and by children from their beginning (add_process); close() and abort() end what nobody else holds. What
// changed is told to each holder.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "wire/areas/tcp_area.h"

namespace offpath::channel {

struct SocketOptions {
  std::uint32_t flows = 1024;
  std::uint32_t send_bytes = 256 << 10,
                receive_bytes = 256 << 10;  // of a flow's rings; powers of two. Memory is taken as it is used
  std::uint64_t kept_bytes = 0;             // for whatever its owner keeps for all processes: SocketArea::kept()
};

// What a program wishes of a flow at any time.
struct FlowWishes {
  bool gathers = false;  // Nagle's rule: no small segment while another is on its way
  std::uint8_t keepalive_probes = 9;
  std::uint16_t keepalive_idle_s = 0, keepalive_interval_s = 75;  // idle 0: no keepalive
  std::uint32_t user_timeout_ms = 0;                              // without an acknowledgement; 0: the agent's
  friend bool operator==(const FlowWishes&, const FlowWishes&) = default;
};

class SocketArea {
 public:
  using Handle = std::uint32_t;
  struct Endpoint {
    std::uint32_t address;  // 10.0.0.1 is 0x0a000001
    std::uint16_t port;
  };
  // What can be done without would_block, and what a flow is.
  struct Look {
    bool connected, readable, writable;  // at the end, and after a failure, both can be done: they tell
    bool finished;                       // the peer has said all
    bool closed;                         // both have, or there is an error: nothing comes or goes any more
    wire::TcpError error;
    Endpoint local, remote;
    std::uint64_t unread, unacknowledged;
    std::uint64_t received, acknowledged;  // so far
    std::uint32_t round_trip_us, window;   // with the news that came last; window: of congestion, bytes
    std::uint16_t mss;                     // 0: not told yet
  };

  [[nodiscard]] static wire::TcpAreaLayout layout_of(const SocketOptions& options) noexcept;
  // `memory` is as long as the layout says, zeroed, and outlives this. `wake` makes a sleeping core of the agent's
  // look.
  using Wake = std::function<void(std::uint32_t core)>;
  SocketArea(MutableBytes memory, const SocketOptions& options, Wake wake);
  // The same area in another process that maps it, the one of this number.
  SocketArea(MutableBytes memory, const SocketOptions& options, Wake wake, std::uint32_t process);
  SocketArea(const SocketArea&) = delete;
  SocketArea& operator=(const SocketArea&) = delete;
  // Once the agent has opened it, and before it is used: the agent has said how many cores it has.
  void spread();
  [[nodiscard]] std::uint32_t cores() const noexcept { return cores_; }
  [[nodiscard]] std::uint32_t core_of(Handle handle) const noexcept { return cores_ == 1 ? 0 : handle % cores_; }

  // Whether it was granted is told by look(). `flags`: wire::tcp_no_delay.
  [[nodiscard]] Result<Handle> listen(std::uint16_t port, std::uint32_t backlog, std::uint16_t flags = 0);
  [[nodiscard]] Result<Handle> connect(Endpoint remote, std::uint16_t local_port = 0, std::uint16_t flags = 0);
  // These return would_block where they would have to wait.
  [[nodiscard]] Result<Handle> accept(Handle listener);
  [[nodiscard]] Result<std::size_t> send(Handle flow, Bytes bytes);  // how many were taken
  // How bytes are read: so many further on than those that were; they stay unread; they are not copied, so `bytes` is
  // but their number.
  struct Reading {
    std::uint64_t skip = 0;
    bool peeks = false, discards = false;
  };
  [[nodiscard]] Result<std::size_t> receive(Handle flow, MutableBytes bytes) {
    return receive(flow, bytes, Reading{});
  }  // 0: the peer has said all
  [[nodiscard]] Result<std::size_t> receive(Handle flow, MutableBytes bytes, const Reading& reading);
  [[nodiscard]] Status finish(Handle flow);  // says that this was all
  void close(Handle handle);                 // what was sent goes out still; the handle means nothing any more
  void abort(Handle flow);
  // For all processes that hold it, and hold it still: a listener listens no more, a connection that is not there yet
  // is not to be. False: it is neither.
  bool stop(Handle handle);
  [[nodiscard]] Result<Look> look(Handle handle);
  // The same as far as was taken in: nothing changes by being asked.
  [[nodiscard]] Result<Look> known(Handle handle) const;
  void set_wishes(Handle flow, const FlowWishes& wishes);

  // Without the lock, so an answer of the past: whether the agent has told something, and whether take_changed() has
  // something to say.
  [[nodiscard]] bool has_news() const noexcept;
  [[nodiscard]] bool has_changed() const noexcept;
  // A connection or listener that this process holds, and about which something was told since it was named last,
  // whoever took it in.
  [[nodiscard]] std::optional<Handle> take_changed();
  // Bytes of any connection, closed ones included, wait to be acknowledged.
  [[nodiscard]] bool undelivered();

  // A process to come, which holds what this one does, or only `handles`. Error::no_space: there are as many as may be.
  [[nodiscard]] Result<std::uint32_t> add_process();
  [[nodiscard]] Result<std::uint32_t> add_process(std::span<const Handle> handles);
  void drop_process(std::uint32_t process);                            // it has ended, or did not begin
  void become(std::uint32_t process) noexcept { process_ = process; }  // in a forked child
  [[nodiscard]] std::uint32_t process() const noexcept { return process_; }
  [[nodiscard]] bool holds(Handle handle);
  // This process closes all it holds. True: no other one is left.
  bool depart();
  [[nodiscard]] MutableBytes kept() const noexcept;  // zeroed at the beginning

  // Takes in what the agent tells; true if it told something.
  bool take_in();
  // Gives pages of receive rings back to the machine: of connections that are closed, and of those that had nothing to
  // read and got nothing between two calls. To be called about once a second while there is time for it. False: it
  // has nothing to do until something was received.
  bool give_back(TimeNs now);
  // The agent is to tell about pages that go back: until that is taken in, nothing is received in their connections.
  [[nodiscard]] bool is_giving_back() const noexcept;
  // Before a sleep until the agent wakes this program. False: there is something already.
  [[nodiscard]] bool fall_asleep();
  void stay_awake();  // nobody of this process sleeps any more

 private:
  struct Shared;
  struct Cell;
  struct Process;
  struct Seats;
  class Lock;
  [[nodiscard]] Result<Look> known_locked(Handle handle) const;

  [[nodiscard]] Cell& cell(Handle handle) const noexcept;
  [[nodiscard]] Result<Cell*> find(Handle handle, bool listener = false) const;
  [[nodiscard]] Process& process(std::uint32_t number) const noexcept;
  [[nodiscard]] std::uint64_t& held_word(std::uint32_t number, Handle handle) const noexcept;
  [[nodiscard]] std::uint64_t& changed_word(std::uint32_t number, Handle handle) const noexcept;
  [[nodiscard]] std::uint32_t group_of_handles() const noexcept;
  [[nodiscard]] bool is_held(std::uint32_t number, Handle handle) const noexcept;
  [[nodiscard]] Result<std::uint32_t> new_process() noexcept;
  void hold(std::uint32_t number, Handle handle) noexcept;
  void let_go(std::uint32_t number, Handle handle, bool abort) noexcept;
  void let_go_of_all(std::uint32_t number) noexcept;
  void name_holders(Handle handle) noexcept;
  void count_holders() const noexcept;
  void set_changed(std::uint32_t number, Handle handle) noexcept;
  [[nodiscard]] std::byte* ring(Handle handle, bool receives) const noexcept;
  [[nodiscard]] std::uint32_t cores_told() const noexcept;
  [[nodiscard]] std::uint32_t next_core() noexcept;
  [[nodiscard]] std::uint32_t ring_of(Handle handle) const noexcept;
  [[nodiscard]] Seats& seats(Handle listener, std::uint32_t core) const noexcept;
  [[nodiscard]] Handle oldest_waiting(Handle listener) const noexcept;
  [[nodiscard]] std::uint32_t seats_of_core(const Cell& listener) const noexcept;
  [[nodiscard]] std::optional<Handle> take_handle(std::uint32_t core) noexcept;
  void free_handle(Handle handle) noexcept;
  void name_rings(Handle handle, wire::TcpWish& wish) const noexcept;
  [[nodiscard]] bool room(std::uint32_t core) const noexcept;
  [[nodiscard]] bool room_anywhere() const noexcept;
  void post(std::uint32_t core, const wire::TcpWish& wish) noexcept;
  void owe(Handle handle, std::uint8_t what) noexcept;
  void settle() noexcept;
  bool settle(Handle handle) noexcept;
  void fill_seats(Handle listener) noexcept;
  void fill_seats(Handle listener, std::uint32_t core) noexcept;
  void set_lacks(Cell& listener, std::uint32_t core, bool lacks) noexcept;
  [[nodiscard]] bool may_fill_seats() const noexcept;
  void dismiss(Handle listener) noexcept;
  [[nodiscard]] static bool is_seat_of(const Cell& seat, const Cell& listener) noexcept;
  void mark_changed(Handle handle) noexcept;
  void clear(Handle handle) noexcept;
  void take(const wire::TcpNews& news) noexcept;
  bool take_all() noexcept;
  bool take_all(std::uint32_t core) noexcept;
  void end(Handle handle, bool abort) noexcept;
  [[nodiscard]] bool count_used(Handle handle) const noexcept;
  [[nodiscard]] bool give_back(Handle handle) noexcept;
  void set_shutting(Handle handle, bool shutting) noexcept;
  void free_pages(Handle handle) noexcept;
  void tell_agent() noexcept;
  void tell_core(std::uint32_t core) noexcept;

  MutableBytes memory_;
  wire::TcpAreaLayout layout_;
  std::uint32_t send_bytes_, receive_bytes_;
  std::uint64_t kept_bytes_;
  Wake wake_;
  std::uint32_t process_ = 0, cores_ = 1;
  Shared* shared_;
};

}  // namespace offpath::channel
