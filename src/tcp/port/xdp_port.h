// An interface's TCP through AF_XDP sockets: a program at the driver (xdp_program.h) puts the agent's TCP into memory
// that the kernel and this process share, before the kernel has made anything of it. An optional part of the build
// (OFFPATH_XDP); without it, opening fails and says so.
//
//                 driver, queue q --+-- TCP to the agent --> socket (q, core) --> port of the core
//                  (XDP program)    +-- everything else  --> the kernel, and copies of ARP, neighbour discovery and
//                                                            ICMP by the core's packet socket --> the same port
//
// A core has a socket at each queue of the device, so the number of queues and of cores need not be the same, and the
// program decides which core a flow has. Each queue has its packet memory (UMEM), which the sockets of all cores share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "tcp/port/packet_filter.h"
#include "tcp/port/port.h"

namespace offpath::tcp {

struct XdpOptions {
  std::string interface;
  FrameTargets targets;  // with the address of one family at least; `tcp` and `steered` follow from the rest
  std::uint32_t cores = 1;
  bool zero_copy_only = false;  // fails where the driver cannot place frames in the packet memory itself
};

// One port for each core. Needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF while opening. The program stays at the driver
// as long as one of the ports exists: the process holds it by a descriptor, so it goes however the process ends.
//
// Frames are whole packets: checksums and segmentation are the stack's. Received ones lie in the packet memory until
// the next `receive`; transmitted ones are copied into it.
//
// Errors: `unsupported` without libxdp, if the driver runs no XDP programs, or has no zero-copy where that is required;
// `exists` if another program or socket has the interface or a queue of it; `not_found`, `denied`; otherwise `io`.
[[nodiscard]] Result<std::vector<std::unique_ptr<Port>>> open_xdp(const XdpOptions& options);

}  // namespace offpath::tcp
