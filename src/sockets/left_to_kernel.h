// Sockets that stay the kernel's, counted by the reason. At exit the program says on stderr how many there were, where
// OFFPATH_SOCKETS_REPORT is 1.
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

// While this library opens sockets of its own, in this thread.
class OwnSockets {
 public:
  OwnSockets() noexcept;
  ~OwnSockets();
  OwnSockets(const OwnSockets&) = delete;
  OwnSockets& operator=(const OwnSockets&) = delete;
};

}  // namespace offpath::sockets
