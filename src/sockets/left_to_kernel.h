// Counts sockets that are left to the kernel, by reason, for a program and its forked children together. With
// OFFPATH_SOCKETS_REPORT=1 the program writes the counts to stderr when it exits.
#pragma once

#include <string>
#include <string_view>

namespace offpath::sockets {

enum class Left : unsigned {
  unix_domain,
  ipv6,
  datagrams,
  other_families,
  loopback,
  not_named,
  no_agent,
  forked_child,
  other_network  // another network namespace than the supervisor's (src/supervise)
};

void count_left(Left why) noexcept;
void count_offloaded() noexcept;
void note_failure(std::string_view why) noexcept;  // the last one is part of the report
[[nodiscard]] std::string report();                // one line, for all processes that share the counts
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
