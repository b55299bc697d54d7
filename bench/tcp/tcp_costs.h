// Measures how much requests cost on this machine, call by call, for simulated_requests.h. Two threads on two cores
// take turns, so that no call waits for a core or for the other side, and what one core has written is read by the
// other one. Each cost is the median of its calls.
//
//   calls of the kernel's sockets    bursts of messages between a client in one network namespace and a server in the
//                                    other, over the benchmark's devices
//   rounds of an agent               the same client's bursts; the real stack and service on a packet socket, without a
//                                    daemon around them
//   calls of the sockets library     by an offloaded server that takes the time of its own calls (tcp_server.c)
//   wakes, switches, yields          of two threads on two cores, and of two processes on one
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "report.h"
#include "tcp_client.h"
#include "testing/tcp/simulated_requests.h"

namespace offpath::bench {

// Costs differ by which threads share a core.
struct MeasuredCosts {
  tcp::RequestCosts kernel;        // client and server on cores of their own
  tcp::RequestCosts agent_apart;   // the agent's core is its own
  tcp::RequestCosts agent_beside;  // the client is on the agent's core
  tcp::SchedulerCosts scheduler;
};

struct CostPlaces {
  std::string near;           // the servers' network namespace, a file
  std::string device;         // there, for the agent
  std::string agent, kernel;  // addresses: of that agent, which nobody else has, and of the kernel there
  StreamServer measuring;     // the offloaded server that takes the time of its calls
  int host_core = 0, agent_core = 1;
};

class CostMeter {
 public:
  // The calling thread is the client from now on, in its own network namespace, and is moved between the two cores.
  [[nodiscard]] static Result<std::unique_ptr<CostMeter>> open(const CostPlaces& places);
  virtual ~CostMeter() = default;
  [[nodiscard]] virtual Result<MeasuredCosts> measure(bool quick) = 0;
};

}  // namespace offpath::bench
