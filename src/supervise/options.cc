#include "supervise/options.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "sockets/hints.h"
#include "wire/areas/tcp_area.h"

namespace offpath::supervise {

namespace {

constexpr std::array settable{
    Option{SOL_SOCKET, SO_KEEPALIVE},      Option{SOL_SOCKET, SO_REUSEADDR},   Option{SOL_SOCKET, SO_REUSEPORT},
    Option{SOL_SOCKET, SO_RCVLOWAT},       Option{SOL_SOCKET, SO_SNDBUF},      Option{SOL_SOCKET, SO_RCVBUF},
    Option{SOL_SOCKET, SO_RCVTIMEO},       Option{SOL_SOCKET, SO_SNDTIMEO},    Option{SOL_SOCKET, SO_LINGER},
    Option{SOL_SOCKET, SO_BROADCAST},      Option{IPPROTO_IP, IP_TTL},         Option{IPPROTO_IP, IP_MTU_DISCOVER},
    Option{IPPROTO_IPV6, IPV6_V6ONLY},     Option{IPPROTO_TCP, TCP_NODELAY},   Option{IPPROTO_TCP, TCP_CORK},
    Option{IPPROTO_TCP, TCP_KEEPIDLE},     Option{IPPROTO_TCP, TCP_KEEPINTVL}, Option{IPPROTO_TCP, TCP_KEEPCNT},
    Option{IPPROTO_TCP, TCP_USER_TIMEOUT}, Option{IPPROTO_TCP, TCP_CONGESTION}};
// Read-only, beside those that the connection answers itself.
constexpr std::array readable{Option{SOL_SOCKET, SO_TYPE}, Option{SOL_SOCKET, SO_DOMAIN},
                              Option{SOL_SOCKET, SO_PROTOCOL}, Option{SOL_SOCKET, SO_SNDLOWAT},
                              Option{SOL_SOCKET, SO_INCOMING_CPU}};
constexpr int keepalive_s_max = 32767, keepalive_probes_max = 127;

template <class List>
bool has(const List& list, const Option& option) noexcept {
  return std::ranges::find(list, option) != list.end();
}

bool is_hint(const Option& option) noexcept {
  return std::ranges::any_of(sockets::hints, [&](const sockets::Hint& hint) {
    return hint.level == option.level && hint.name == option.name;
  });
}

template <class Value>
Value value_of(int fd, const Option& option) noexcept {
  Value value{};
  socklen_t length = sizeof value;
  ::getsockopt(fd, option.level, option.name, &value, &length);
  return value;
}

void copy(int from, int to, const Option& option) noexcept {
  std::array<char, 32> value{}, fresh{};
  socklen_t length = value.size(), fresh_length = fresh.size();
  if (::getsockopt(from, option.level, option.name, value.data(), &length) != 0) return;
  if (::getsockopt(to, option.level, option.name, fresh.data(), &fresh_length) == 0 && value == fresh) return;
  if (option == Option{SOL_SOCKET, SO_SNDBUF} || option == Option{SOL_SOCKET, SO_RCVBUF}) {
    int doubled = 0;  // by the kernel
    std::memcpy(&doubled, value.data(), sizeof doubled);
    doubled /= 2;
    std::memcpy(value.data(), &doubled, sizeof doubled);
  }
  ::setsockopt(to, option.level, option.name, value.data(), length);
}

}  // namespace

bool is_settable(const Option& option, int family) noexcept {
  if (option.level == IPPROTO_IPV6 && family != AF_INET6) return false;
  return has(settable, option) || is_hint(option);
}

bool is_readable(const Option& option, int family) noexcept {
  return is_settable(option, family) || has(readable, option);
}

bool concerns_pair(const Option& option) noexcept {
  return option.level == SOL_SOCKET &&
         (option.name == SO_RCVTIMEO || option.name == SO_SNDTIMEO || option.name == SO_RCVLOWAT);
}

Fd copy_of_options(int fd, int family) noexcept {
  const int protocol = value_of<int>(fd, {SOL_SOCKET, SO_PROTOCOL});
  Fd made(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, protocol));
  if (!made) return made;
  for (const Option& option : settable)
    if (is_settable(option, family)) copy(fd, made.get(), option);
  for (const sockets::Hint& hint : sockets::hints) {
    const Option option{hint.level, hint.name};
    if (is_settable(option, family)) copy(fd, made.get(), option);
  }
  return made;
}

int number_of(int fd, const Option& option) noexcept { return value_of<int>(fd, option); }

channel::FlowSettings flow_settings_of(int fd, wire::TcpCongestion congestion) noexcept {
  const auto tcp = [&](int name) { return value_of<int>(fd, {IPPROTO_TCP, name}); };
  const bool keeps_alive = value_of<int>(fd, {SOL_SOCKET, SO_KEEPALIVE}) != 0;
  return {
      .gathers = tcp(TCP_CORK) != 0,
      .keepalive_probes = static_cast<std::uint8_t>(std::min(tcp(TCP_KEEPCNT), keepalive_probes_max)),
      .congestion = congestion,
      .keepalive_idle_s = static_cast<std::uint16_t>(keeps_alive ? std::min(tcp(TCP_KEEPIDLE), keepalive_s_max) : 0),
      .keepalive_interval_s = static_cast<std::uint16_t>(std::min(tcp(TCP_KEEPINTVL), keepalive_s_max)),
      .traffic_class4 = static_cast<std::uint8_t>(number_of(fd, {IPPROTO_IP, IP_TOS})),
      .traffic_class6 = static_cast<std::uint8_t>(number_of(fd, {IPPROTO_IPV6, IPV6_TCLASS})),  // 0 of IPv4
      .user_timeout_ms = static_cast<std::uint32_t>(tcp(TCP_USER_TIMEOUT))};
}

std::string congestion_of(int fd) {
  std::array<char, 16> name{};
  socklen_t length = name.size();
  ::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &length);
  return {name.data(), ::strnlen(name.data(), name.size())};
}

int congestion_error(std::string_view value, std::string_view present, std::string_view allowed,
                     std::string_view available) noexcept {
  const std::string_view name = value.substr(0, value.find('\0'));
  const auto lists = [name](std::string_view names) {
    while (!names.empty()) {
      const std::size_t length = std::min(names.find_first_of(" \n"), names.size());
      if (length > 0 && names.substr(0, length) == name) return true;
      names.remove_prefix(std::min(length + 1, names.size()));
    }
    return false;
  };
  if (lists(allowed) || (!name.empty() && name == present)) return 0;
  return lists(available) ? EPERM : ENOENT;
}

int congestion_error(int fd, std::string_view value) {
  const auto names = [](const char* path) {
    std::array<char, 4096> text;
    const Fd file(::open(path, O_RDONLY | O_CLOEXEC));
    const ssize_t length = file ? ::read(file.get(), text.data(), text.size()) : -1;
    return std::string(text.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  };
  return congestion_error(value, congestion_of(fd), names("/proc/sys/net/ipv4/tcp_allowed_congestion_control"),
                          names("/proc/sys/net/ipv4/tcp_available_congestion_control"));
}

std::uint16_t reuse_flags_of(int fd) noexcept {
  return static_cast<std::uint16_t>((value_of<int>(fd, {SOL_SOCKET, SO_REUSEADDR}) != 0 ? wire::tcp_reuse_address : 0) |
                                    (value_of<int>(fd, {SOL_SOCKET, SO_REUSEPORT}) != 0 ? wire::tcp_reuse_port : 0));
}

TimeNs limit_of(int fd, int name) noexcept {
  const auto limit = value_of<timeval>(fd, {SOL_SOCKET, name});
  const TimeNs length = limit.tv_sec * second_ns + limit.tv_usec * microsecond_ns;
  return length == 0 ? never : deadline_after(monotonic_ns(), length);
}

bool resets_at_close(int fd) noexcept {
  const auto lingers = value_of<linger>(fd, {SOL_SOCKET, SO_LINGER});
  return lingers.l_onoff != 0 && lingers.l_linger == 0;
}

}  // namespace offpath::supervise
