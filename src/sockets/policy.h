// The choice of offloaded sockets, by the environment variables that `offpath sockets` sets.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "connections/socket_area.h"
#include "wire/areas/tcp_area.h"

namespace offpath::sockets {

// Of one family: ::/0 has no IPv4 address.
struct Network {
  wire::IpAddress address;
  unsigned bits;  // of the 128: 10.9.0.0/24 has 96 + 24
  [[nodiscard]] bool has(const wire::IpAddress& other) const noexcept;
};

// The machines that an address may name: this one, or one of a network link; several machines; or any.
enum class Reach { machine, link, group, anywhere };
[[nodiscard]] Reach reach_of(const wire::IpAddress& address) noexcept;

struct Policy {
  std::string agent;  // OFFPATH_AGENT; empty: nothing is offloaded
  // OFFPATH_SOCKETS_ADDRESS=10.9.0.2,2001:db8::2: the agent's address of each family, to which programs may bind;
  // unspecified: not named
  std::array<wire::IpAddress, 2> addresses{};
  bool ports_all = true;
  std::vector<std::uint16_t> ports;  // OFFPATH_SOCKETS_LISTEN=8000,6379: listeners on these ports are offloaded
  // OFFPATH_SOCKETS_CONNECT=10.9.0.0/24,2001:db8::/32: connections to these are offloaded
  std::vector<Network> networks;
  // OFFPATH_SOCKETS_MAX: offloaded at a time, including listeners and their accept slots
  std::uint32_t sockets = 1024;
  std::uint32_t ring_bytes = 16 << 10;  // OFFPATH_SOCKETS_RING: of a socket's first ring for incoming bytes
  bool falls_back = false;              // OFFPATH_SOCKETS_FALLBACK=1: without an agent, sockets are left to the kernel

  [[nodiscard]] const wire::IpAddress& own(wire::IpFamily family) const noexcept {
    return addresses[static_cast<std::size_t>(family)];
  }
  [[nodiscard]] bool is_own(const wire::IpAddress& address) const noexcept {
    return !address.is_unspecified() && address == own(address.family());
  }
  // Whether a listener there is offloaded, if the agent has an address of the family; loopback never is.
  [[nodiscard]] bool listens(const channel::SocketArea::Endpoint& at) const noexcept;
  [[nodiscard]] bool connects(const wire::IpAddress& address) const noexcept;
  // Whether a bind is for a listener that would be offloaded. Of the agent's own address any port is the agent's.
  [[nodiscard]] bool binds_at_agent(const channel::SocketArea::Endpoint& at) const noexcept;
  // Accept slots have their memory in advance, so a backlog takes at most an eighth of all connections.
  [[nodiscard]] int backlog_max() const noexcept { return static_cast<int>(sockets / 8); }
  // Of a socket's first ring for outgoing bytes: as many programs write at a time before they look again.
  [[nodiscard]] std::uint32_t send_bytes() const noexcept;
  // `kept_bytes`: as in SocketOptions.
  [[nodiscard]] channel::SocketOptions options(std::uint64_t kept_bytes) const noexcept;
};

// Each text is the value of its variable; null: not set, which allows every port or network.
[[nodiscard]] Result<Policy> read_policy(const char* agent, const char* address, const char* listen,
                                         const char* connect, const char* fallback = nullptr,
                                         const char* sockets = nullptr, const char* ring = nullptr);
[[nodiscard]] Result<Policy> read_policy_of_environment();

}  // namespace offpath::sockets
