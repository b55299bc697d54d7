// Why a frame was dropped. Each drop is counted under its reason; none is an error of this program.
#pragma once

#include <cstdint>
#include <string_view>

namespace offpath::tcp {

// clang-format off: a list
#define OFFPATH_TCP_DROPS(X)                                          \
  X(none, "taken")                                                    \
  X(truncated, "shorter than its headers say")                        \
  X(other_station, "for another hardware address")                    \
  X(other_protocol, "neither ARP nor IP with TCP or ICMP")            \
  X(bad_ip_header, "an IP header that makes no sense")                \
  X(bad_ip_checksum, "a wrong checksum of the IPv4 header")           \
  X(fragment, "a fragment of a datagram")                             \
  X(other_address, "for another IP address")                          \
  X(bad_source, "from an impossible address")               \
  X(bad_tcp_header, "a TCP header that makes no sense")               \
  X(bad_tcp_checksum, "a wrong TCP checksum")                         \
  X(bad_arp, "ARP or neighbour discovery that makes no sense")        \
  X(bad_icmp, "ICMP that makes no sense, or is about no flow of ours") \
  X(no_room, "beyond a bound")
// clang-format on

enum class Drop : std::uint8_t {
#define X(name, text) name,
  OFFPATH_TCP_DROPS(X)
#undef X
};

#define X(name, text) +1
inline constexpr std::size_t drop_reasons = 0 OFFPATH_TCP_DROPS(X);
#undef X

[[nodiscard]] constexpr std::string_view drop_text(Drop reason) noexcept {
  constexpr std::string_view texts[] = {
#define X(name, text) text,
      OFFPATH_TCP_DROPS(X)
#undef X
  };
  return texts[static_cast<std::size_t>(reason)];
}

}  // namespace offpath::tcp
