// Requests and their answers on many connections, on simulated cores (simulated_cores.h): a client of the kernel, and a
// server in the kernel or over an agent. Calls, rounds and wakes take the time that the caller gives; what they do is
// the real code's where it is ours: stack, service, and the program's end of its area. The kernel's connections are
// modelled: what a send carries is readable when the call ends, as over a pair of devices on one machine, where the
// sender's core does all the work of the receiver's kernel.
//
// A request is one message of the client; the answer has the same size. A connection's next request follows the answer
// to its last one, so as many are under way as there are connections.
#pragma once

#include <memory>

#include "testing/tcp/simulated_cores.h"

namespace offpath::tcp {

// Of one thread's calls.
struct CallCosts {
  TimeNs wait_ns = 0;   // epoll_wait, whatever it finds
  TimeNs event_ns = 0;  // and for each event that it returns
  TimeNs receive_ns = 0, send_ns = 0;

  friend bool operator==(const CallCosts&, const CallCosts&) = default;
};

// Of an agent's round on its device.
struct AgentCosts {
  TimeNs round_ns = 0;                  // that finds nothing
  TimeNs in_round_ns = 0, in_ns = 0;    // more if there are frames; for each of them, its event included
  TimeNs out_round_ns = 0, out_ns = 0;  // more if it sends; for each frame, its command included
  TimeNs yield_ns = 0;                  // to yield a core that nobody else wants
};

struct WakeCosts {
  // For the waker, more than if the other did not sleep: on another core, on its own.
  TimeNs wake_ns = 0, wake_here_ns = 0;
  TimeNs datagram_ns = 0;  // to send the datagram that wakes a program, or an agent
  TimeNs sleep_ns = 0;     // to fall asleep, for code that has looked at memory before
};

struct RequestCosts {
  CallCosts client, server;
  AgentCosts agent;  // of an agent's server only
  WakeCosts wakes;
  TimeNs client_ns = 0, server_ns = 0;  // what the programs themselves do for each request
};

struct RequestSetUp {
  std::size_t connections = 1;
  std::size_t message_bytes = 64;
  bool over_agent = false;
  // After a wait a thread does all receives first and then all sends, as event loops with a queue of answers do
  // (redis); otherwise it serves one event after the other.
  bool receives_first = false;
  bool server_spins = false;  // a server in the kernel: looks for events without sleeping, up to a millisecond
  std::size_t client_core = 0, server_core = 1, agent_core = 2;
};

struct RequestFigures {
  double per_second = 0;
  double latency_ns = 0;  // median, from the begin of the client's send to the end of its receive
  double client_cpu_ns = 0, server_cpu_ns = 0, agent_cpu_ns = 0;  // for each request
};

class SimulatedRequests {
 public:
  SimulatedRequests(const RequestSetUp& set_up, const RequestCosts& costs, const SchedulerCosts& scheduler);
  ~SimulatedRequests();

  // Of `duration`, after half as long.
  [[nodiscard]] RequestFigures run(TimeNs duration);
  [[nodiscard]] SimulatedCores& cores() noexcept;
  // Requests that were sent, and answers that were received, since the beginning.
  [[nodiscard]] std::uint64_t sent() const noexcept;
  [[nodiscard]] std::uint64_t answered() const noexcept;

 private:
  struct World;
  std::unique_ptr<World> world_;
};

}  // namespace offpath::tcp
