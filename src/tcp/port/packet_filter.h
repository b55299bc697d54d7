// Classic BPF of AF_PACKET sockets: statements, and which frames a socket takes. The kernel takes VLAN tags off before
// such a socket sees a frame, so without being asked it would take those of every VLAN for its own.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "tcp/segment/address.h"

namespace offpath::tcp {

// Words that are no bytes of the frame: SKF_AD_ + ….
inline constexpr auto filter_ancillary = static_cast<std::uint32_t>(SKF_AD_OFF);
// Words counted from the network header.
inline constexpr auto filter_network = static_cast<std::uint32_t>(SKF_NET_OFF);

[[nodiscard]] constexpr sock_filter statement(int code, std::uint32_t k) noexcept {
  return {static_cast<std::uint16_t>(code), 0, 0, k};
}
[[nodiscard]] constexpr sock_filter if_equal(std::uint32_t k, std::uint8_t jump, std::uint8_t otherwise) noexcept {
  return {static_cast<std::uint16_t>(BPF_JMP | BPF_JEQ | BPF_K), jump, otherwise, k};
}

// What a socket takes: nothing that this machine sends, and of VLANs what is tagged with a priority alone (VLAN 0).
// With `address`, of that ARP, and what a stack with that address reads: whole datagrams to it, of TCP, and of ICMP
// those that say what could not be delivered. Without, frames of every kind. A datagram in fragments is for nobody: the
// stack puts none together.
[[nodiscard]] std::vector<sock_filter> taking_program(std::optional<Ipv4Address> address);

// Each takes the place of the one before.
[[nodiscard]] Status take_nothing(int socket);
[[nodiscard]] Status take_frames(int socket, std::optional<Ipv4Address> address);

}  // namespace offpath::tcp
