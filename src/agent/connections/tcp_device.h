// Opens the device of programs' TCP connections (tcp.device), with a queue for each of tcp.cores.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/config/tcp_settings.h"
#include "tcp/port/interface_address.h"
#include "tcp/port/port.h"
#include "tcp/port/shared_address.h"

namespace offpath::agent {

// Uses the privileges that this kind of device needs (docs/internals/tcp.md); afterwards none are needed.
[[nodiscard]] Result<std::vector<std::unique_ptr<tcp::Port>>> open_devices(const TcpSettings& settings);

// Why `auto:` takes an interface by AF_XDP or by AF_PACKET: an attempt to open it by AF_XDP with zero-copy alone
// decides.
[[nodiscard]] std::string reason_of_choice(const Result<std::vector<std::unique_ptr<tcp::Port>>>& zero_copy);

// The IPv4 address of an interface that programs' connections use. An error if it has no unicast address, or only one
// without a network.
[[nodiscard]] Result<tcp::InterfaceAddress> address_to_take(const std::string& interface,
                                                            std::span<const tcp::InterfaceAddress> there);

// Takes address and gateway from the interface where settings have none. If the kernel has the IPv4 address itself, it
// leaves TCP there to the agent as long as the returned object lives. Called before a stack is made.
// Error::unsupported: the kernel has the IPv6 address. Error::not_found: no such interface. Error::invalid: no address
// is configured, and the interface has none.
[[nodiscard]] Result<std::optional<tcp::SharedAddress>> settle_address(TcpSettings& settings);

}  // namespace offpath::agent
