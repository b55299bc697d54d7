// The kernel's configuration of an interface, for an agent that adopts it: its addresses, and IPv4's gateway.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tcp/segment/address.h"

namespace offpath::tcp {

struct InterfaceAddress {
  IpAddress address;
  std::uint8_t prefix_length = 0;
  friend bool operator==(const InterfaceAddress&, const InterfaceAddress&) noexcept = default;
};

// In the kernel's order, the primary address first; empty if there is no such interface. Error: getifaddrs(3) failed,
// with its errno.
[[nodiscard]] Result<std::vector<InterfaceAddress>> addresses_of_interface(const std::string& interface);
// By the routes of this network namespace; nullopt if there is no default route through a gateway. Error::io:
// /proc/net/route cannot be read.
[[nodiscard]] Result<std::optional<IpAddress>> gateway_of_interface(const std::string& interface);
// The gateway of the interface's default route with the smallest metric; `routes` is text as in /proc/net/route
// (proc(5)).
[[nodiscard]] std::optional<IpAddress> gateway_in(std::string_view routes, std::string_view interface);

}  // namespace offpath::tcp
