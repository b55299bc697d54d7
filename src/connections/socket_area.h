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
#include "connections/area/agent_words.h"
#include "connections/area/area_rings.h"
#include "connections/area/backlogs.h"
#include "connections/area/copy_turn.h"
#include "connections/area/flow_rings.h"
#include "connections/area/flow_settings.h"
#include "connections/area/free_handles.h"
#include "connections/area/handle_holders.h"
#include "connections/area/idle_memory.h"
#include "connections/area/memory_holders.h"
#include "connections/area/owed_commands.h"
#include "connections/area/process_table.h"
#include "connections/area/socket_records.h"
#include "connections/sleep_word.h"
#include "wire/areas/tcp_area.h"

namespace offpath::channel {

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

  [[nodiscard]] static wire::TcpAreaLayout layout_of(const SocketOptions& options) noexcept {
    return SocketRecords::layout_of(options);
  }
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
  [[nodiscard]] std::uint32_t core_of(Handle handle) const noexcept { return rings_.core_of(handle); }
  [[nodiscard]] const AgentWords& agent() const noexcept { return agent_; }

  // look() shows whether the agent granted it, and the port. `flags`: the families, at least one of wire::tcp_for_ipv4
  // and tcp_for_ipv6; tcp_no_delay, tcp_reuse_port, tcp_reuse_address.
  [[nodiscard]] Result<Handle> bind(std::uint16_t port, std::uint16_t flags = wire::tcp_families);  // 0: any port
  // `bound`: a handle of bind() that has the port. `settings`: of its connections from their first packet on, in place
  // of the flag tcp_no_delay.
  [[nodiscard]] Result<Handle> listen(std::uint16_t port, std::uint32_t backlog,
                                      std::uint16_t flags = wire::tcp_families, Handle bound = wire::tcp_no_handle,
                                      const FlowSettings* settings = nullptr);
  // From the agent's own address of the same family. `settings`: likewise.
  [[nodiscard]] Result<Handle> connect(Endpoint remote, std::uint16_t local_port = 0, std::uint16_t flags = 0,
                                       const FlowSettings* settings = nullptr);
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
  [[nodiscard]] Result<Look> known(Handle handle);
  void set_flow_settings(Handle flow, const FlowSettings& settings);

  // Without the lock, so possibly outdated: whether the agent has sent an event, and whether take_changed() has a
  // result.
  [[nodiscard]] bool has_events() const noexcept { return rings_.has_events() || processes_.was_told(process_); }
  [[nodiscard]] bool has_changed() const noexcept { return processes_.has_changed(process_); }
  // A connection or listener that this process holds and that had an event since its last mention here, whichever
  // process took the event in.
  [[nodiscard]] std::optional<Handle> take_changed();
  // Whether bytes of any connection, including closed ones, are unacknowledged.
  [[nodiscard]] bool undelivered();  // asked repeatedly, it looks at each connection once or twice

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
  [[nodiscard]] MutableBytes kept() const noexcept { return records_.kept(); }  // zeroed at the start

  // Takes in the agent's events; true if there were any.
  bool take_in();
  // Gives pages of rings back to the machine: of closed connections, and of those whose streams stand still. Such flows
  // also get their first rings again. Call it about once a second when idle. False: nothing to do until has_memory().
  bool give_back(TimeNs now);
  // From now on this process gives no pages back: a seccomp filter may kill it for madvise. Any thread.
  void keep_pages() noexcept { flow_rings_.keep_pages(); }
  // Without the lock: whether commands or accept slots wait until the agent has taken or told something: somebody has
  // to take its events in.
  [[nodiscard]] bool is_unsettled() const noexcept { return records_.shared().is_unsettled(); }
  // Without the lock: whether the rings of a flow may have memory to give back; whether a flow may have a larger ring
  // than its first one.
  [[nodiscard]] bool has_memory() const noexcept { return memory_holders_.any(); }
  [[nodiscard]] bool uses_pool() const noexcept { return flow_rings_.uses_pool(); }
  // The agent is asked for events about pages that go back: until these are taken in, their connections receive
  // nothing.
  [[nodiscard]] bool is_giving_back() const noexcept { return idle_memory_.is_shutting_any(); }
  // Before a sleep until the agent wakes this program. False: there are events already. until_full: it only does when
  // events wait for room in their ring, as nobody takes them in.
  enum class Sleep { until_events, until_full };
  [[nodiscard]] bool fall_asleep(Sleep sleep = Sleep::until_events);
  void stay_awake();  // no thread of this process sleeps any more

  // A thread that waits for a connection or listener that its process holds sleeps here. The agent wakes it by the next
  // event of that handle, and so does wake_sleepers(). False: over a link the agent does not.
  [[nodiscard]] bool has_sleep_words() const noexcept { return !rings_.is_linked(); }
  [[nodiscard]] SleepWord sleep_word(Handle handle) const noexcept;
  // After a change that the agent does not know of.
  void wake_sleepers(Handle handle) const noexcept;

 private:
  class Lock;
  [[nodiscard]] SocketCell& cell(Handle handle) const noexcept { return records_.cell(handle); }
  [[nodiscard]] Result<SocketCell*> find(Handle handle, SocketCell::Is wanted = SocketCell::Is::flow) const;
  [[nodiscard]] Result<Handle> take_port(const wire::TcpCommand& command, std::uint32_t backlog);
  [[nodiscard]] Result<std::size_t> room_to_send(Handle flow, std::size_t bytes);
  [[nodiscard]] Result<Look> known_locked(Handle handle) const;
  void let_go(Handle handle, bool abort);
  void let_go(std::uint32_t number, Handle handle, bool abort) noexcept;
  void let_go_of_all(std::uint32_t number) noexcept;
  void end(Handle handle, bool abort) noexcept;
  void dismiss(Handle listener) noexcept;
  [[nodiscard]] Result<std::uint32_t> new_process() noexcept;
  void hold_with(std::uint32_t number, Handle handle) noexcept;
  void name_holders(Handle handle) noexcept;
  void take(const wire::TcpEvent& event) noexcept;
  void take_accepted(const wire::TcpEvent& event) noexcept;
  bool take_all() noexcept;
  void settle() noexcept;
  void recount() noexcept;

  // Each of these uses those before it.
  SocketRecords records_;
  std::uint32_t process_ = 0;
  AgentWords agent_;
  AreaRings rings_;
  ProcessTable processes_;
  MemoryHolders memory_holders_;
  FlowRings flow_rings_;
  IdleMemory idle_memory_;
  OwedCommands owed_;
  FreeHandles handles_;
  Backlogs backlogs_;
  HandleHolders holders_;
};

}  // namespace offpath::channel
