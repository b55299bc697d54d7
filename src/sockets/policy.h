// Which sockets go over the agent. From the environment, as `offpath sockets` sets it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace offpath::sockets {

struct Network {
  std::uint32_t address, mask;  // 10.0.0.1 is 0x0a000001
  [[nodiscard]] bool has(std::uint32_t other) const noexcept { return (other & mask) == address; }
};

struct Policy {
  std::string agent;      // OFFPATH_AGENT; empty: nothing is offloaded
  std::uint32_t own = 0;  // OFFPATH_SOCKETS_ADDRESS: the agent's, where a program may bind to it
  bool ports_all = true;
  std::vector<std::uint16_t> ports;  // OFFPATH_SOCKETS_LISTEN=8000,6379: where listeners are offloaded
  std::vector<Network> networks;     // OFFPATH_SOCKETS_CONNECT=10.9.0.0/24,…: connections to these are offloaded
  // OFFPATH_SOCKETS_MAX: offloaded at a time, listeners and places for connections to come included
  std::uint32_t sockets = 1024;
  bool falls_back = false;  // OFFPATH_SOCKETS_FALLBACK=1: what no agent serves is the kernel's, and does not fail

  // A listener at this address and port; loopback is always the kernel's.
  [[nodiscard]] bool listens(std::uint32_t address, std::uint16_t port) const noexcept;
  [[nodiscard]] bool connects(std::uint32_t address) const noexcept;
  [[nodiscard]] static bool is_loopback(std::uint32_t address) noexcept;
};

// Each text as its variable has it; null: it is not set, and every port, or every network, is meant.
[[nodiscard]] Result<Policy> read_policy(const char* agent, const char* address, const char* listen,
                                         const char* connect, const char* fallback = nullptr,
                                         const char* sockets = nullptr);

}  // namespace offpath::sockets
