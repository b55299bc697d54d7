// The family of the addresses that tests of the stack use: IPv4, or IPv6 if OFFPATH_TEST_FAMILY is ipv6. ctest runs
// these tests with each (FAMILIES in cmake/OffpathTargets.cmake). Packets of IPv6 are larger by as much as its header,
// so that segments have the same payload.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tcp/flow/stack_options.h"
#include "tcp/segment/neighbour_discovery.h"

namespace offpath::tcp {

[[nodiscard]] inline IpFamily test_family() {
  static const char* const named = std::getenv("OFFPATH_TEST_FAMILY");
  return named != nullptr && std::string_view(named) == "ipv6" ? IpFamily::v6 : IpFamily::v4;
}
[[nodiscard]] inline bool tests_ipv6() { return test_family() == IpFamily::v6; }

// fd00:: with the same end, for 10.0.0.1.
[[nodiscard]] inline IpAddress test_address(std::uint32_t value) {
  IpAddress address = ipv4(value);
  if (!tests_ipv6()) return address;
  address.bytes[0] = 0xfd;
  address.bytes[10] = address.bytes[11] = 0;
  return address;
}

// An address that no machine has alone.
[[nodiscard]] inline IpAddress test_group() { return tests_ipv6() ? all_nodes : ipv4(0xe0000001); }

[[nodiscard]] inline std::uint16_t test_mtu(std::uint16_t of_ipv4) {
  return static_cast<std::uint16_t>(of_ipv4 + ip_header_bytes(test_family()) - ip_header_bytes(IpFamily::v4));
}

// The stack has this address, in a network of 256, and does not check it first.
inline void set_test_address(StackOptions& options, std::uint32_t value) {
  IpInterface& own = tests_ipv6() ? options.v6 : options.v4;
  own.address = test_address(value);
  own.prefix_length = tests_ipv6() ? 120 : 24;
  options.start = {0, 0, 0};
}

}  // namespace offpath::tcp
