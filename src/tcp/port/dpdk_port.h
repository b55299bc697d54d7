// A DPDK device as a port: a card whose queues are in this process's memory, or one of DPDK's virtual devices on top of
// the kernel's. An optional part of the build (OFFPATH_DPDK); without it, opening one fails and says so.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "tcp/port/port.h"

namespace offpath::tcp {

struct DpdkOptions {
  // DPDK's name of the device: "0000:03:00.0", "auxiliary:mlx5_core.sf.2", "net_af_packet0,iface=eth0",
  // "net_tap0,iface=dtap0".
  std::string device;
  // Arguments for DPDK's environment abstraction layer (EAL), such as {"--no-huge", "-m", "64", "--no-pci"}; mainly
  // they choose its memory. EAL starts once in a process and runs until the process ends, so every device of a process
  // is opened with the same arguments.
  std::vector<std::string> arguments;
};

// Destroying the port returns the device to DPDK. Opening needs the capabilities of the device's driver, and only while
// opening: CAP_NET_RAW for mlx5 cards and net_af_packet, CAP_NET_ADMIN for net_tap. DPDK's own threads have no
// capabilities.
//
// Memory: received frames lie in the device's buffers until the next `receive`. Transmitted frames are copied into such
// buffers before `transmit` returns: the payload then belongs to its owner again, and the card reads the copy later.
//
// Errors, each with DPDK's message: `unsupported` without DPDK; `invalid` for arguments that differ from the first ones
// or that DPDK rejects; `not_found` if there is no such device; otherwise `io`.
[[nodiscard]] Result<std::unique_ptr<Port>> open_dpdk(const DpdkOptions& options);

}  // namespace offpath::tcp
