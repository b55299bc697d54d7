// One TCP, two stacks: a fast one that has all flows that are established, and a slow one that does how connections
// begin and how they are forgotten: neighbours, handshakes, half-open connections and cookies, refusals, TIME-WAIT.
// These are the two sides of what they say to each other. Each is told in the order in which things happened, which is
// what keeps a flow from being in both, or in none.
//
//   fast (the agent's)                                  slow (another process's)
//   frames of no flow, or of neighbours  -- frame -->
//   listen, connect                      -- … ----->    half-open connections, SYNs and their repetition
//   the owner is asked, the flow begins  <- adopt ---   the handshake is done
//                                        - confirmed->  what belongs to it is not kept any more; or declined: the peer
//                                                       tries again
//   what came in between is received     <- returned-   frames of flows that were handed over and not confirmed yet
//   both directions have ended           - time_wait->  two minutes of answers, or what time_wait_ns says
//   the next hop of a flow               - resolve -->
//                                        <- neighbour-
//
// A stack without either does all of it.
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
  virtual void listen(IpFamily family, std::uint16_t port, std::uint64_t receive_bytes) = 0;
  virtual void stop_listening(IpFamily family, std::uint16_t port) = 0;
  virtual void connect(const FlowKey& key, std::uint32_t attempt, std::uint64_t receive_bytes) = 0;
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
