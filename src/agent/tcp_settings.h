// The keys of [tcp], and what they become.
#pragma once

#include <optional>
#include <string>

#include "base/config.h"
#include "tcp/stack_options.h"
#include "tcp/tcp_service.h"

namespace offpath::agent {

struct TcpSettings {
  std::string device;  // an interface, or a TAP device to be made
  bool tap = false;
  std::uint16_t mtu = 0;  // 0: the device's
  std::string congestion;
  std::string trace_file;  // empty: none
  tcp::StackOptions stack;  // without its secret
  tcp::TcpServiceLimits limits;
};

// None: there is no device, so programs' connections are the kernel's.
[[nodiscard]] Result<std::optional<TcpSettings>> read_tcp(const Config& config);

}  // namespace offpath::agent
