// A device of DPDK's as a port: a card whose queues are in this process's memory, or one of DPDK's virtual devices on
// the kernel's. An optional part of the build (OFFPATH_DPDK); without it opening one says so.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "tcp/port/port.h"

namespace offpath::tcp {

struct DpdkOptions {
  // As DPDK names it: "0000:03:00.0", "auxiliary:mlx5_core.sf.2", "net_af_packet0,iface=eth0", "net_tap0,iface=dtap0".
  std::string device;
  // Words for DPDK's environment abstraction layer (EAL), such as {"--no-huge", "-m", "64", "--no-pci"}: what memory it
  // takes, above all. It begins once in a process and stays until its end, so every device of one process is opened
  // with the same.
  std::vector<std::string> arguments;
};

// The device is taken from DPDK when the port is destroyed. Needs what the device's driver does: CAP_NET_RAW for cards
// of mlx5 and for net_af_packet, CAP_NET_ADMIN for net_tap, and until then alone. DPDK's own threads have no
// capabilities.
//
// Whose memory: what is received lies in the device's buffers until the next `receive`. What is transmitted is copied
// into such buffers before `transmit` returns, so payload is its owner's again; the card reads the copy when it likes.
//
// Errors: `unsupported` without DPDK; `invalid` for words that are not those of before, or that DPDK does not take;
// `not_found` for a device that is none; otherwise `io`. Each with what DPDK said.
[[nodiscard]] Result<std::unique_ptr<Port>> open_dpdk(const DpdkOptions& options);

}  // namespace offpath::tcp
