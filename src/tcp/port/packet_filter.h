// Classic BPF filters of AF_PACKET sockets. The kernel removes VLAN tags before such a socket sees a frame, so without
// a filter on the tag the socket would take the frames of every VLAN.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "tcp/segment/address.h"

namespace offpath::tcp {

// Ancillary data, which is not in the frame: SKF_AD_ + ….
inline constexpr auto filter_ancillary = static_cast<std::uint32_t>(SKF_AD_OFF);
// Offsets counted from the network header.
inline constexpr auto filter_network = static_cast<std::uint32_t>(SKF_NET_OFF);

[[nodiscard]] constexpr sock_filter statement(int code, std::uint32_t k) noexcept {
  return {static_cast<std::uint16_t>(code), 0, 0, k};
}
[[nodiscard]] constexpr sock_filter if_equal(std::uint32_t k, std::uint8_t jump, std::uint8_t otherwise) noexcept {
  return {static_cast<std::uint16_t>(BPF_JMP | BPF_JEQ | BPF_K), jump, otherwise, k};
}

// Frames that a socket takes: none that this machine sends, and of tagged ones only those with a priority tag (VLAN 0).
// With `address`: ARP, and whole datagrams to that address that the stack reads, which are TCP and ICMP "destination
// unreachable". Without `address`: frames of every kind. Fragments are dropped because the stack does not reassemble
// them.
[[nodiscard]] std::vector<sock_filter> taking_program(std::optional<Ipv4Address> address);

// Each replaces the socket's filter.
[[nodiscard]] Status take_nothing(int socket);
[[nodiscard]] Status take_frames(int socket, std::optional<Ipv4Address> address);

}  // namespace offpath::tcp
