// Two ways to open an interface (tcp.device): two agents with the same program, one with AF_PACKET, the default, and
// one with AF_XDP.
#pragma once

#include "machine.h"
#include "report.h"
#include "tcp_client.h"

namespace offpath::bench {

struct DeviceSide {
  StreamServer server{};
  pid_t agent = -1;
};

// Streams both ways, which are to be as fast as the other device's at least; and, shown, echoes of 64 bytes alone and
// on 32 busy connections, and the agent's processor time for each byte and echo.
[[nodiscard]] Status measure_devices(const DeviceSide& packet, const DeviceSide& xdp, const Options& options,
                                     Report& report);

}  // namespace offpath::bench
