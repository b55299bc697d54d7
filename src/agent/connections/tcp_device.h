// The device of programs' TCP connections, opened as tcp.device says, with a queue for each of tcp.cores.
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

// Takes the rights that the kind of device does (docs/internals/tcp.md), and none afterwards.
[[nodiscard]] Result<std::vector<std::unique_ptr<tcp::Port>>> open_devices(const TcpSettings& settings);

// Of an interface's addresses, the one for programs' connections. Error: there is none that a machine can have, or it
// has no network.
[[nodiscard]] Result<tcp::InterfaceAddress> address_to_take(const std::string& interface,
                                                            std::span<const tcp::InterfaceAddress> there);

// The address and gateway of an interface are the kernel's where settings have none. While the kernel has the address
// itself, it leaves TCP there alone as long as what is returned is there. Before a stack is made.
// Error::not_found: there is no such interface. Error::invalid: no address is named, and it has none to be taken.
[[nodiscard]] Result<std::optional<tcp::SharedAddress>> settle_address(TcpSettings& settings);

}  // namespace offpath::agent
