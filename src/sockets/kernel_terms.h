// The agent's connections in the terms of the kernel's calls: addresses, error numbers, TCP_INFO. The preload library
// and the supervisor (src/supervise) answer alike.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <optional>
#include <string_view>

#include "connections/socket_area.h"

namespace offpath::sockets {

// A copy of an address that a call on a socket of this family was given. IPv6 sockets pass IPv4 addresses mapped (RFC
// 4291, 2.5.5.2). nullopt: too short, or of another family.
[[nodiscard]] std::optional<channel::SocketArea::Endpoint> endpoint_of(int family, Bytes address) noexcept;

// The address that a bind or connect names, or the error with which the kernel refuses it.
enum class NamedBy { bind, connect };
struct Named {
  channel::SocketArea::Endpoint at{};
  int error = 0;
  bool disconnects = false;  // connect with AF_UNSPEC: there is no address
};
[[nodiscard]] Named named_by(NamedBy call, int family, bool is_ipv6_only, Bytes address) noexcept;

// The families of a port bound to this address, as flags of commands.
[[nodiscard]] std::uint16_t families_of(const wire::IpAddress& address, bool is_ipv6_only) noexcept;

// Why a socket of AF_INET6 that is bound there cannot connect to this address; 0: it can. One that is bound to an
// address of IPv6 carries IPv6 only.
[[nodiscard]] int mismatch_of(const wire::IpAddress& bound, const wire::IpAddress& to) noexcept;
// The error of reading an option that the kernel does not know.
[[nodiscard]] int unknown_option(int level, int family) noexcept;

struct KernelAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};
[[nodiscard]] KernelAddress kernel_address(const channel::SocketArea::Endpoint& endpoint, int family) noexcept;

[[nodiscard]] int errno_of(wire::TcpError error) noexcept;
// Why no connection or listener could be made.
[[nodiscard]] int errno_of(const Failure& why) noexcept;

// The value of TCP_CONGESTION, with zeros behind the name.
using CongestionName = std::array<char, 16>;
[[nodiscard]] CongestionName congestion_name(wire::TcpCongestion chosen, const channel::SocketArea& area) noexcept;
// The choice that such a value, or its beginning, names. error: ENOENT, the agent has none of that name; EPERM, the
// agent does not allow it.
struct CongestionChoice {
  wire::TcpCongestion congestion = wire::TcpCongestion::agents;
  int error = 0;
};
[[nodiscard]] CongestionChoice congestion_choice(
    std::string_view value, const channel::SocketArea& area,
    channel::AgentWords::Rights rights = channel::AgentWords::Rights::of_program) noexcept;

enum class Role { unconnected, listener, connection };
// As of the last event. `look`: null if there is none.
[[nodiscard]] tcp_info info_of(Role role, const channel::SocketArea::Look* look) noexcept;

}  // namespace offpath::sockets
