#include "sockets/hints.h"

#include <cerrno>
#include <cstring>

#include "base/fd.h"
#include "sockets/calls.h"
#include "sockets/kernel.h"
#include "wire/areas/tcp_area.h"

namespace offpath::sockets {

namespace {

bool concerns_ipv6(const Hint& hint) noexcept { return hint.level == IPPROTO_IPV6; }

// Sets the option on a kernel socket and reads the resulting values back. nullopt: no socket can be created.
std::optional<int> try_out(int family, const Hint& hint, const void* from, socklen_t length,
                           HintValues& values) noexcept {
  const Fd probe(kernel::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (probe.get() < 0) return std::nullopt;
  if (kernel::setsockopt(probe.get(), hint.level, hint.name, from, length) != 0) return -1;
  const auto read = [&](const Hint& option) {
    socklen_t room = sizeof(int);
    return kernel::getsockopt(probe.get(), option.level, option.name, static_cast<void*>(&values.of(option)), &room);
  };
  if (hint == traffic_class4) read({SOL_SOCKET, SO_PRIORITY});  // it follows from the class
  return read(hint);
}

}  // namespace

std::optional<Hint> find_hint(int level, int name, int family) noexcept {
  const Hint hint{level, name};
  const bool is_one = std::ranges::find(hints, hint) != hints.end() && (family == AF_INET6 || !concerns_ipv6(hint));
  return is_one ? std::optional(hint) : std::nullopt;
}

HintValues hints_of(int fd, int family) noexcept {
  HintValues values;
  for (const Hint& hint : hints) {
    if (family != AF_INET6 && concerns_ipv6(hint)) continue;
    socklen_t length = sizeof(int);
    kernel::getsockopt(fd, hint.level, hint.name, static_cast<void*>(&values.of(hint)), &length);
  }
  return values;
}

int set_hint(HintValues& values, const Hint& hint, int family, const void* from, socklen_t length,
             bool asks_kernel) noexcept {
  int& value = values.of(hint);
  // Some programs set an option such as TCP_QUICKACK again and again; a known value costs no system call.
  const bool is_whole = !is_bad(from, length) && length >= sizeof value;
  if (is_whole && std::memcmp(from, &value, sizeof value) == 0) return 0;
  if (asks_kernel)
    if (const auto tried = try_out(family, hint, from, length, values)) return *tried;
  if (!is_whole) return failed(is_bad(from, length) ? EFAULT : EINVAL);
  std::memcpy(&value, from, sizeof value);
  if (hint == traffic_class6 && value == -1) value = 0;  // the default
  if (is_traffic_class(hint)) value &= wire::tcp_traffic_class_mask;
  return 0;
}

}  // namespace offpath::sockets
