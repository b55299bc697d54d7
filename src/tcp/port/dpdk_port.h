// A DPDK device as a port: a card whose queues are in this process's memory, or one of DPDK's virtual devices on top of
// the kernel's. An optional part of the build (OFFPATH_DPDK); without it, opening one fails and says so.
#pragma once

#include <cstdint>
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
  std::uint32_t cores = 1;  // that take frames, each from a queue of its own
};

// One port for each core. The device spreads frames over the queues by a hash of its own (RSS, with a key that is the
// same for both directions of a flow, where it takes one). A frame whose flow belongs to another core (core_of_frame.h)
// is handed to that core's port, which is woken. Each port is used by one thread; all are destroyed after these ended.
//
// Destroying the last port returns the device to DPDK. Opening needs the capabilities of the device's driver, and only
// while opening: CAP_NET_RAW for mlx5 cards and net_af_packet, CAP_NET_ADMIN for net_tap. DPDK's own threads have no
// capabilities.
//
// Memory: received frames lie in the device's buffers until the next `receive`. Transmitted frames are copied into such
// buffers before `transmit` returns: the payload then belongs to its owner again, and the card reads the copy later.
//
// Errors, each with DPDK's message: `unsupported` without DPDK, or if the device has fewer queues than `cores`;
// `invalid` for arguments that differ from the first ones or that DPDK rejects; `not_found` if there is no such device;
// otherwise `io`.
[[nodiscard]] Result<std::vector<std::unique_ptr<Port>>> open_dpdk(const DpdkOptions& options);

}  // namespace offpath::tcp
