// Requests with every process on a core of its own, where the machine has two cores: simulated with costs that are
// measured here (tcp_costs.h). Each claim is judged beside a simulation of what two cores can show, which is measured
// as well:
//
//   measured and simulated    server | agent and client; server in the kernel | client
//   simulated alone           server | agent | client
//
// A claim is not decided if a simulation of its kind misses what was measured by more than `simulation_miss_most`,
// or if the ratio is closer to its target than that miss.
#pragma once

#include "machine.h"
#include "report.h"
#include "tcp_client.h"
#include "tcp_costs.h"

namespace offpath::bench {

struct CoresUnderTest {
  StreamServer offloaded, kernel, spinning;
  CostPlaces costs;
  // Figures of redis-benchmark for each kind of request, with the client on the agent's core: see tcp_cores.py.
  std::string redis;
};

[[nodiscard]] Status measure_cores(const CoresUnderTest& under_test, const Options& options, Report& report);

}  // namespace offpath::bench
