// Socket options that only hint: an offloaded socket keeps their values, for getsockopt, without effect. The kernel
// checks and rounds them, as it does on a socket of its own.
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
  std::array<char, 16> congestion{};  // TCP_CONGESTION; the agent's own algorithm is used

  // An accepted connection does not inherit these from its listener.
  void forget_listeners() noexcept {
    for (const Hint& hint :
         {Hint{SOL_SOCKET, SO_PRIORITY}, Hint{IPPROTO_TCP, TCP_DEFER_ACCEPT}, Hint{IPPROTO_TCP, TCP_FASTOPEN}})
      of(hint) = 0;
  }
  [[nodiscard]] int& of(const Hint& hint) noexcept {
    return numbers[static_cast<std::size_t>(std::ranges::find(hints, hint) - hints.begin())];
  }
};

// nullopt: not a hint, or not an option of this family.
[[nodiscard]] std::optional<Hint> find_hint(int level, int name, int family) noexcept;
// Reads the values of a kernel socket.
[[nodiscard]] HintValues hints_of(int fd, int family) noexcept;
// As setsockopt: returns 0, or -1 with errno. `asks_kernel`: false in a program that may not create sockets.
[[nodiscard]] int set_hint(HintValues& values, const Hint& hint, int family, const void* from, socklen_t length,
                           bool asks_kernel) noexcept;
[[nodiscard]] int set_congestion(HintValues& values, int family, const void* from, socklen_t length,
                                 bool asks_kernel) noexcept;

}  // namespace offpath::sockets
