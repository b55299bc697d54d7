// Counts sockets that are left to the kernel, by reason. With OFFPATH_SOCKETS_REPORT=1 the program writes the counts to
// stderr when it exits.
#pragma once

#include <string>

namespace offpath::sockets {

enum class Left : unsigned {
  unix_domain,
  ipv6,
  datagrams,
  other_families,
  loopback,
  not_named,
  no_agent,
  forked_child
};

void count_left(Left why) noexcept;
void count_offloaded() noexcept;
[[nodiscard]] std::string report();  // one line

// While one exists, sockets of this thread are this library's own and are not counted.
class OwnSockets {
 public:
  OwnSockets() noexcept;
  ~OwnSockets();
  OwnSockets(const OwnSockets&) = delete;
  OwnSockets& operator=(const OwnSockets&) = delete;
};

}  // namespace offpath::sockets
