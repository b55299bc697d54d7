// A reliable queue pair between a program and its agent, made by rdmacm with minimal access rights.
//
// | queue pair | what the other side may do        | reads outstanding  |
// |------------|-----------------------------------|--------------------|
// | the host's | RDMA READ, RDMA WRITE; no atomics | the agent's        |
// | the agent's| nothing                           | -                  |
//
// Each memory region then says which bytes may be read and written. Each connection has a protection domain and a
// device context of its own on both sides: a key of one channel is useless on another's queue pair.
//
// A queue pair made by rdmacm itself would have more rights than these for a while. So the queue pair is made and moved
// through its states by hand, with rdmacm's attributes except for the rights.
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
  unsigned reads_granted = 0;   // of a request: reads that this side may have outstanding
};

// In order of dependence; destroyed from the last to the first. Memory regions of the domain have to be released
// before: their owner calls break_off(), frees them, then calls close().
struct VerbsConnection {
  VerbsCallsPtr calls;
  EventChannel events;
  ConnectionId listener;  // the agent's, until the program has connected
  ConnectionId id;
  VerbsContext context;
  ProtectionDomain domain;
  CompletionChannel completions;
  CompletionQueue queue;
  QueuePair pair;
  unsigned send_requests_max = 0;
  unsigned inline_bytes_max = 0;
  ibv_mtu packet_max = IBV_MTU_4096;  // the smaller limit of both ports
  TimeNs silence_ns = 0;              // of the control connection: bounds the retries

  // The next event, without blocking.
  [[nodiscard]] Result<std::optional<ConnectionEvent>> next_event();
  // After it returns nothing accesses this side's memory any more, and the other side is informed.
  void break_off() noexcept;
  void close() noexcept;
  // In a forked child: closes the child's copies of descriptors, so that only the parent keeps the queue pair alive,
  // and leaves every object unchanged, because it is the parent's.
  void abandon() noexcept;
};

// ---- the agent's side

// Listens at the address at which the control connection arrived.
[[nodiscard]] Result<VerbsConnection> listen_for_queue_pair(const ControlSocket& socket);
[[nodiscard]] std::uint16_t port_of(const VerbsConnection& connection) noexcept;
// Handles new events; true once the queue pair may be used. Connections of strangers are rejected and forgotten.
[[nodiscard]] Result<bool> advance_accept(VerbsConnection& connection, const VerbsProofs& proofs);

// ---- the host's side

// `reads_out`: the number of outstanding reads of the agent's memory. A program reads none; tests try to.
[[nodiscard]] Result<VerbsConnection> connect_queue_pair(const ControlSocket& socket, std::uint16_t port,
                                                         const VerbsProofs& proofs, TimeNs deadline,
                                                         unsigned reads_out = 0);

}  // namespace offpath::link
