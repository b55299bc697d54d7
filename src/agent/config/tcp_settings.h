// The keys of [tcp], and the values they become.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "loop/loop.h"
#include "tcp/flow/stack_options.h"
#include "tcp/program/tcp_service_limits.h"

namespace offpath::agent {

struct TcpSettings {
  enum class Kind {
    interface,  // of the kernel, by packet sockets
    xdp,        // the same by AF_XDP sockets
    best,       // whichever of the two suits its driver
    tap,
    dpdk,
    agent
  };
  std::string device;  // an interface, the name of a new TAP device, a DPDK device, or the address of another agent
  Kind kind = Kind::interface;
  std::vector<std::string> dpdk_arguments;
  std::uint16_t mtu = 0;  // 0: the device's
  std::string congestion;
  std::string trace_file;          // empty: none
  bool slow_path_on_host = false;  // as long as a process offers to do it
  std::uint32_t cores = 1;         // loops
  std::vector<unsigned> pin;       // cores for the loops beside the agent's own; empty: any
  loop::LoopOptions loop;          // options of these loops
  tcp::StackOptions stack;         // for all cores together, without its secret; no address: that of the interface
  tcp::TcpServiceLimits limits;

  [[nodiscard]] bool kernel_has_interface() const noexcept {  // an interface that the kernel has
    return kind == Kind::interface || kind == Kind::xdp || kind == Kind::best;
  }
};

// The least MTU that a device of such a stack may have.
[[nodiscard]] std::uint16_t mtu_least(const tcp::StackOptions& stack) noexcept;

// Empty: no device is configured, and programs' connections are the kernel's.
[[nodiscard]] Result<std::optional<TcpSettings>> read_tcp(const Config& config);

}  // namespace offpath::agent
