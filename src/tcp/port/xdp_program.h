// The program at an interface's driver that takes TCP of the agent's addresses from the kernel. Every other frame takes
// its way without a program: to the kernel, and to packet sockets (packet_filter.h), which have ARP, neighbour
// discovery and ICMP for the stack, and TCP behind IPv6 extension headers.
#pragma once

#include <linux/bpf.h>

#include <cstdint>
#include <vector>

#include "tcp/port/packet_filter.h"

namespace offpath::tcp {

// eBPF for XDP. `sockets` is the descriptor of an XSKMAP that has the socket of each core at each queue of the
// interface, at index queue * cores + core. The core is the one of wire/areas/flow_steering.h, as with a fanout
// (fanout.h), whichever queue the frame came by. Passed to the kernel: frames for which no socket is there, fragments,
// and frames of a VLAN, if the driver leaves the tag in the frame.
[[nodiscard]] std::vector<bpf_insn> redirecting_program(const FrameTargets& targets, std::uint32_t cores, int sockets);

}  // namespace offpath::tcp
