// Gives memory of idle connections back: pages of receive rings to the machine, and larger rings to the program's pool.
//
// The agent may write arriving data to any allowed part of a ring. So pages are given back only where it stores none:
// of closed connections, or while their window is shut (TcpCommandKind::shut). A peer that sends meanwhile has to
// retransmit, so this is for idle connections, not for busy streams.
//
// A flow gets its first rings again when its streams have stood still for ten seconds, with nothing in either ring; or
// for two, while less than a quarter of the pool is free. Both are longer than a retransmission timeout, after which a
// sender begins with its initial window (RFC 5681, 4.1): the first ring has room for ten segments of 1,460 bytes. Flows
// with larger segments keep their ring while the pool is not short.
//
// After ten seconds a flow also gives back the pages of its first ring for outgoing bytes, if all were acknowledged. So
// an idle flow keeps no more than its first ring for incoming bytes.
#pragma once

#include "connections/area/flow_rings.h"
#include "connections/area/memory_holders.h"
#include "connections/area/socket_records.h"

namespace offpath::channel {

class IdleMemory {
 public:
  using Handle = std::uint32_t;
  IdleMemory(const SocketRecords& records, AreaRings& commands, MemoryHolders& holders, FlowRings& rings) noexcept
      : records_(records), commands_(commands), holders_(holders), rings_(rings) {}

  // A look at a part of all handles, in pieces, between which the caller gives the lock up.
  struct Look {
    HandlePass pass;
    std::uint32_t left;  // handles
  };
  // None: whichever process looked last did so a moment ago.
  [[nodiscard]] std::optional<Look> begin(TimeNs now) noexcept;
  // True: there is another piece.
  [[nodiscard]] bool look(Look& look, TimeNs now) noexcept;

  // The answer to a `shut`: the agent stores nothing until more is allowed, or has refused that. Marks the `allow` that
  // opens the window again in SocketCell::owed.
  void on_shut(const wire::TcpEvent& event) noexcept;
  // The window of the handle is about to be opened, or the handle has ended.
  void open_window(Handle handle) noexcept { set_shutting(handle, false); }
  // Without the lock: whether the agent was asked to shut a window.
  [[nodiscard]] bool is_shutting_any() const noexcept { return SocketsShared::read(records_.shared().shutting); }
  // Counts the bytes that have passed through a ring, whose pages they have taken. True: none since the last count.
  bool count_used(Handle handle, Way way) const noexcept;

 private:
  [[nodiscard]] bool give_back(Handle handle, TimeNs now, TimeNs idle) noexcept;
  [[nodiscard]] bool give_received_back(Handle handle, TimeNs rested) noexcept;
  [[nodiscard]] bool give_sent_back(Handle handle, TimeNs rested) noexcept;
  void fall_back(Handle handle, TimeNs idle) noexcept;
  void shut(Handle handle) noexcept;
  void set_shutting(Handle handle, bool shutting) noexcept;
  void free_pages(Handle handle) noexcept;

  const SocketRecords& records_;
  AreaRings& commands_;
  MemoryHolders& holders_;
  FlowRings& rings_;
};

}  // namespace offpath::channel
