// The device of programs' TCP connections, opened as tcp.device says, with a queue for each of tcp.cores.
#pragma once

#include <memory>
#include <vector>

#include "agent/tcp_settings.h"
#include "tcp/port.h"

namespace offpath::agent {

// Takes the rights that the kind of device does (docs/tcp.md), and none afterwards.
[[nodiscard]] Result<std::vector<std::unique_ptr<tcp::Port>>> open_devices(const TcpSettings& settings);

}  // namespace offpath::agent
