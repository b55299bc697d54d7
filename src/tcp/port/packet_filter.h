// Classic BPF filters of AF_PACKET sockets. The kernel removes VLAN tags before such a socket sees a frame, so without
// a filter on the tag the socket would take the frames of every VLAN.
#pragma once

#include <linux/filter.h>

#include <optional>
#include <vector>

#include "base/status.h"
#include "tcp/segment/address.h"

namespace offpath::tcp {

// The targets of a socket's frames.
struct FrameTargets {
  IpAddress v4{}, v6{};  // a stack's own; unspecified: none of that family
  // Only frames whose core steering_program() knows from the flow, which are those without IPv6 extension headers.
  bool steered = false;
  // False: all but TCP that has no IPv6 extension header before it, which reaches the stack by another way
  // (xdp_program.h).
  bool tcp = true;
};

// Frames that a socket takes: none that this machine sends, and of tagged ones only those with a priority tag (VLAN 0).
// With `targets`: ARP, IPv6's neighbour discovery, and whole datagrams to those addresses that the stack reads, which
// are TCP and ICMP about undelivered packets. Without: frames of every kind. Fragments are dropped because the stack
// does not reassemble them.
[[nodiscard]] std::vector<sock_filter> taking_program(const std::optional<FrameTargets>& targets);

// Each replaces the socket's filter.
[[nodiscard]] Status take_nothing(int socket);
[[nodiscard]] Status take_frames(int socket, const std::optional<FrameTargets>& targets);

}  // namespace offpath::tcp
