// The keys of [tcp], and what they become.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "loop/loop.h"
#include "tcp/program/tcp_service.h"
#include "tcp/stack/stack_options.h"

namespace offpath::agent {

struct TcpSettings {
  enum class Kind { interface, tap, dpdk };
  std::string device;  // an interface, a TAP device to be made, or a device of DPDK's
  Kind kind = Kind::interface;
  std::vector<std::string> dpdk_arguments;
  std::uint16_t mtu = 0;  // 0: the device's
  std::string congestion;
  std::string trace_file;          // empty: none
  bool slow_path_on_host = false;  // whenever a process offers to do it
  std::uint32_t cores = 1;         // loops
  std::vector<unsigned> pin;       // the machine's cores that loops beside the agent's own run on; none: any
  loop::LoopOptions loop;          // of these
  tcp::StackOptions stack;         // of all cores together, without its secret; address 0: the interface's own
  tcp::TcpServiceLimits limits;
};

// None: there is no device, so programs' connections are the kernel's.
[[nodiscard]] Result<std::optional<TcpSettings>> read_tcp(const Config& config);

}  // namespace offpath::agent
