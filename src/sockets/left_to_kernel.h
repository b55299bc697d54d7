// Counts sockets that are left to the kernel, by reason, for a program and its forked children together. With
// OFFPATH_SOCKETS_REPORT=1 the program writes the counts to stderr when it exits.
#pragma once

#include <string>
#include <string_view>

#include "wire/areas/ip_address.h"

namespace offpath::sockets {

enum class Left : unsigned {
  unix_domain,
  ipv4,  // of which the agent has no address
  ipv6,
  datagrams,
  other_families,
  loopback,
  link_local,
  not_named,
  no_agent,
  forked_child,
  other_network  // another network namespace than the supervisor's (src/supervise)
};

// The reason why a socket with this address is left to the kernel although the agent has an address of its family; and
// one of a family of which the agent has none.
[[nodiscard]] Left left_at(const wire::IpAddress& address) noexcept;
[[nodiscard]] constexpr Left left_without(wire::IpFamily family) noexcept {
  return family == wire::IpFamily::v4 ? Left::ipv4 : Left::ipv6;
}

void count_left(Left why) noexcept;
void count_offloaded() noexcept;
// The last one is part of the report. False: one of the processes has noted the same before, so it has been said.
[[nodiscard]] bool note_failure(std::string_view why) noexcept;
void forget_failure() noexcept;      // the agent was reached: the next failure is a new one
[[nodiscard]] std::string report();  // one line, for all processes that share the counts
// Called by a process that exits. True for one process of a program: its first, or another if the first has ended.
[[nodiscard]] bool is_to_report() noexcept;

// While one exists, sockets of this thread are this library's own and are not counted.
class OwnSockets {
 public:
  OwnSockets() noexcept;
  ~OwnSockets();
  OwnSockets(const OwnSockets&) = delete;
  OwnSockets& operator=(const OwnSockets&) = delete;
};

}  // namespace offpath::sockets
