// The device of programs' TCP connections, opened as tcp.device says.
#pragma once

#include <memory>

#include "agent/tcp_settings.h"
#include "tcp/port.h"

namespace offpath::agent {

// Takes the rights that the kind of device does (docs/tcp.md), and none afterwards.
[[nodiscard]] Result<std::unique_ptr<tcp::Port>> open_device(const TcpSettings& settings);

}  // namespace offpath::agent
