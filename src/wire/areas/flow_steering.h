// The core of an agent that has a connection: a function of the connection's four numbers, which the agent, the program
// and the kernel's steering of frames compute alike (tcp/port/fanout.h has it as a classic BPF program, so it uses only
// 32-bit arithmetic). The order of the two sides does not matter: a frame, its answer, and the part of it that an ICMP
// message quotes are steered to the same core. An IPv6 address counts by the exclusive or of its words.
//
// It spreads load and keeps no secret: a peer can choose its ports so that one core has all of its connections, as with
// a card's queues.
#pragma once

#include <cstdint>

#include "wire/areas/ip_address.h"

namespace offpath::wire {

namespace steering {
inline constexpr std::uint32_t ports_multiplier = 0x9e3779b1, first_multiplier = 0x85ebca6b,
                               second_multiplier = 0xc2b2ae35;
inline constexpr unsigned first_shift = 16, second_shift = 13, third_shift = 16;
}  // namespace steering

// Ports in the machine's byte order. The last steps spread inputs that differ in few bits (from MurmurHash3, public
// domain).
[[nodiscard]] constexpr std::uint32_t flow_hash(const IpAddress& address, std::uint16_t port,
                                                const IpAddress& other_address, std::uint16_t other_port) noexcept {
  std::uint32_t hash = (address.folded() ^ other_address.folded()) ^
                       (static_cast<std::uint32_t>(port ^ other_port) * steering::ports_multiplier);
  hash = (hash ^ (hash >> steering::first_shift)) * steering::first_multiplier;
  hash = (hash ^ (hash >> steering::second_shift)) * steering::second_multiplier;
  return hash ^ (hash >> steering::third_shift);
}

[[nodiscard]] constexpr std::uint32_t core_of_flow(const IpAddress& address, std::uint16_t port,
                                                   const IpAddress& other_address, std::uint16_t other_port,
                                                   std::uint32_t cores) noexcept {
  return cores <= 1 ? 0 : flow_hash(address, port, other_address, other_port) % cores;
}

}  // namespace offpath::wire
