// Socket options whose values an offloaded socket keeps for getsockopt. The kernel checks and rounds them, as it does
// on a socket of its own. IP_TOS and IPV6_TCLASS are the class of sent packets; the others only hint, and have no
// effect.
#pragma once

#include <linux/in6.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

namespace offpath::sockets {

struct Hint {
  int level, name;
  friend bool operator==(const Hint&, const Hint&) noexcept = default;
};
inline constexpr std::array hints{Hint{IPPROTO_IP, IP_TOS},
                                  Hint{IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT},
                                  Hint{IPPROTO_IPV6, IPV6_TCLASS},
                                  Hint{IPPROTO_IPV6, IPV6_RECVTCLASS},
                                  Hint{IPPROTO_IPV6, IPV6_UNICAST_HOPS},
                                  Hint{IPPROTO_IPV6, IPV6_MTU_DISCOVER},
                                  Hint{IPPROTO_IPV6, IPV6_DONTFRAG},
                                  Hint{IPPROTO_IPV6, IPV6_AUTOFLOWLABEL},
                                  Hint{IPPROTO_IPV6, IPV6_ADDR_PREFERENCES},
                                  Hint{SOL_SOCKET, SO_PRIORITY},
                                  Hint{SOL_SOCKET, SO_BUSY_POLL},
                                  Hint{SOL_SOCKET, SO_OOBINLINE},
                                  Hint{IPPROTO_TCP, TCP_QUICKACK},
                                  Hint{IPPROTO_TCP, TCP_DEFER_ACCEPT},
                                  Hint{IPPROTO_TCP, TCP_FASTOPEN},
                                  Hint{IPPROTO_TCP, TCP_LINGER2},
                                  Hint{IPPROTO_TCP, TCP_NOTSENT_LOWAT},
                                  Hint{IPPROTO_TCP, TCP_SYNCNT}};

struct HintValues {
  std::array<int, hints.size()> numbers{};

  // An accepted connection does not inherit these from its listener.
  void forget_listeners() noexcept {
    for (const Hint& hint :
         {Hint{SOL_SOCKET, SO_PRIORITY}, Hint{IPPROTO_TCP, TCP_DEFER_ACCEPT}, Hint{IPPROTO_TCP, TCP_FASTOPEN}})
      of(hint) = 0;
  }
  [[nodiscard]] int& of(const Hint& hint) noexcept { return numbers[place_of(hint)]; }
  [[nodiscard]] int of(const Hint& hint) const noexcept { return numbers[place_of(hint)]; }

 private:
  [[nodiscard]] static std::size_t place_of(const Hint& hint) noexcept {
    return static_cast<std::size_t>(std::ranges::find(hints, hint) - hints.begin());
  }
};

inline constexpr Hint traffic_class4{IPPROTO_IP, IP_TOS}, traffic_class6{IPPROTO_IPV6, IPV6_TCLASS};
[[nodiscard]] constexpr bool is_traffic_class(const Hint& hint) noexcept {
  return hint == traffic_class4 || hint == traffic_class6;
}

// nullopt: not a hint, or not an option of this family.
[[nodiscard]] std::optional<Hint> find_hint(int level, int name, int family) noexcept;
// Reads the values of a kernel socket.
[[nodiscard]] HintValues hints_of(int fd, int family) noexcept;
// As setsockopt: returns 0, or -1 with errno. `asks_kernel`: false in a program that may not create sockets.
[[nodiscard]] int set_hint(HintValues& values, const Hint& hint, int family, const void* from, socklen_t length,
                           bool asks_kernel) noexcept;

}  // namespace offpath::sockets
