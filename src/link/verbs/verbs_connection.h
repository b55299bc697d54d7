// A reliable queue pair between a program and its agent, made by rdmacm with the least rights there are.
//
// | queue pair | what the other side may do        | reads outstanding  |
// |------------|-----------------------------------|--------------------|
// | the host's | RDMA READ, RDMA WRITE; no atomics | the agent's        |
// | the agent's| nothing                           | -                  |
//
// What can be read and written is then said by each memory region. Both sides have a protection domain of their own for
// each connection, on a device context of their own: a key of one channel is of no use on another's queue pair.
//
// rdmacm would give a queue pair that it made itself more rights than these for a while. So here the
// queue pair is made and moved through its states by hand, with the attributes rdmacm names but for the rights.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "link/verbs/verbs_handles.h"
#include "link/verbs/verbs_link.h"

namespace offpath::link {

struct ConnectionEvent {
  rdma_cm_event_type type{};
  int status = 0;
  rdma_cm_id* id = nullptr;
  std::vector<std::byte> said;  // private data
  unsigned reads_granted = 0;   // of a request: how many this side may have outstanding
};

// In the order in which they depend on each other; destroyed from the last to the first. Memory regions of the domain
// have to go before it: their owner calls break_off(), frees them, then close().
struct VerbsConnection {
  VerbsCallsPtr calls;
  EventChannel events;
  ConnectionId listener;  // the agent's, until the program has come
  ConnectionId id;
  VerbsContext context;
  ProtectionDomain domain;
  CompletionChannel completions;
  CompletionQueue queue;
  QueuePair pair;
  unsigned send_requests_max = 0;
  unsigned inline_bytes_max = 0;
  ibv_mtu packet_max = IBV_MTU_4096;  // of both sides' ports
  TimeNs silence_ns = 0;              // of the control connection: its retries take no longer

  // The next thing that happened, without blocking.
  [[nodiscard]] Result<std::optional<ConnectionEvent>> next_event();
  // Nothing of this side's memory is touched any more when it returns, and the other side hears of it.
  void break_off() noexcept;
  void close() noexcept;
  // In a forked child: closes the child's copies of descriptors, so that only the parent keeps the queue pair alive,
  // and leaves every object as it is, for they are the parent's.
  void abandon() noexcept;
};

// ---- the agent's side

// Listens at the address the control connection came to.
[[nodiscard]] Result<VerbsConnection> listen_for_queue_pair(const ControlSocket& socket);
[[nodiscard]] std::uint16_t port_of(const VerbsConnection& connection) noexcept;
// What happened since; true once the queue pair may be used. Strangers are rejected and forgotten.
[[nodiscard]] Result<bool> advance_accept(VerbsConnection& connection, const VerbsProofs& proofs);

// ---- the host's side

// `reads_out`: how many reads of the agent's memory may be outstanding. A program reads none; tests try.
[[nodiscard]] Result<VerbsConnection> connect_queue_pair(const ControlSocket& socket, std::uint16_t port,
                                                         const VerbsProofs& proofs, TimeNs deadline,
                                                         unsigned reads_out = 0);

}  // namespace offpath::link
