// The slow path of TCP in two places: two agents with the same program, one that does it itself and one whose host does
// it (tcp.slow_path).
#pragma once

#include "machine.h"
#include "report.h"
#include "tcp_client.h"

namespace offpath::bench {

struct SlowPathSide {
  StreamServer server{};
  pid_t agent = -1;
  pid_t process = -1;  // of the slow path; -1: the agent itself
};

// Connections that are opened, asked once and closed by the server, one at a time and many; the cost of each for the
// agent and the process beside it; and the echo of a lasting connection, alone and while others come and go.
[[nodiscard]] Status measure_slow_path(const SlowPathSide& on_host, const SlowPathSide& on_agent,
                                       const Options& options, Report& report);

}  // namespace offpath::bench
