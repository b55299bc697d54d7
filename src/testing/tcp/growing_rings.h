// For tests about rings that grow: the port of the server, the size of first rings, and a path between the agents.
#pragma once

#include "testing/tcp/network.h"

namespace offpath::tcp {

inline constexpr std::uint16_t port = 8000;
inline constexpr std::uint32_t first_bytes = 16 << 10;

[[nodiscard]] inline TestNetworkOptions path(TimeNs one_way_ns, std::uint64_t bytes_per_second = 0) {
  TestNetworkOptions options;
  options.there.delay_ns = options.back.delay_ns = one_way_ns;
  options.there.bytes_per_second = options.back.bytes_per_second = bytes_per_second;
  options.stack.time_wait_ns = options.stack.fin_wait_ns = second_ns;
  return options;
}

}  // namespace offpath::tcp
