// One TCP, two stacks: the fast one has all established flows; the slow one begins and ends connections: neighbours,
// handshakes, half-open connections and cookies, refusals, TIME-WAIT. These interfaces are the two directions of their
// messages. Messages keep the order of events, so a flow is never in both stacks or in neither.
//
//   fast (the agent's)                                  slow (another process's)
//   frames of no flow, or of neighbours  -- frame -->
//   listen, connect                      -- … ----->    half-open connections, SYNs and their repetition
//   the owner is asked, the flow begins  <- adopt ---   the handshake is done
//                                        - confirmed->  its segments are not kept any more; or declined: the peer
//                                                       tries again
//   segments of that time are received   <- returned-   frames of flows that were handed over and not confirmed yet
//   both directions have ended           - time_wait->  answers for two minutes, or for time_wait_ns
//   the next hop of a flow               - resolve -->
//                                        <- neighbour-
//
// A stack without either does everything.
#pragma once

#include "tcp/flow/flow.h"
#include "tcp/segment/frame.h"
#include "wire/areas/tcp_slow_path.h"

namespace offpath::tcp {

// The messages of a stack to its slow path.
class SlowPath {
 public:
  virtual ~SlowPath() = default;
  // May be lost, as frames are. `of_neighbour`: ARP or neighbour discovery.
  virtual void frame(const ReceivedFrame& frame, bool of_neighbour) = 0;
  virtual void listen(IpFamily family, std::uint16_t port, std::uint64_t receive_bytes, const FlowOptions& options) = 0;
  virtual void stop_listening(IpFamily family, std::uint16_t port) = 0;
  virtual void connect(const FlowKey& key, std::uint32_t attempt, std::uint64_t receive_bytes,
                       const FlowOptions& options) = 0;
  virtual void abandon(const FlowKey& key, std::uint32_t attempt) = 0;
  virtual void time_wait(const wire::TcpHandedFlow& flow) = 0;
  virtual void resolve(const IpAddress& address) = 0;
};

// The messages of a slow path to its stack.
class FastPath {
 public:
  virtual ~FastPath() = default;
  virtual void adopt(const wire::TcpHandedFlow& flow, const ReceivedFrame* frame) = 0;
  virtual void failed(const FlowKey& key, std::uint32_t attempt, FlowError error) = 0;
  virtual void returned(const ReceivedFrame& frame) = 0;
  virtual void neighbour(const IpAddress& address, const MacAddress& mac) = 0;
};

[[nodiscard]] inline wire::TcpSlowKey slow_key(const FlowKey& key, std::uint32_t attempt,
                                               std::uint64_t value = 0) noexcept {
  return {key.local.address, key.remote.address, key.local.port, key.remote.port, attempt, value};
}
[[nodiscard]] inline FlowKey flow_key(const wire::TcpSlowKey& key) noexcept {
  return {{key.local_address, key.local_port}, {key.remote_address, key.remote_port}};
}

}  // namespace offpath::tcp
