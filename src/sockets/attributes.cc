// Options, addresses and FIONREAD. Options that the kernel checks are kept (hints.h); unknown ones are refused.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstring>

#include "sockets/calls.h"
#include "sockets/kernel.h"

namespace offpath::sockets {

namespace {

template <class Value>
int give(const Value& value, void* to, socklen_t* length) {
  const auto written = std::min<socklen_t>(*length, sizeof value);
  if (is_bad(to, written)) return failed(EFAULT);
  std::memcpy(to, &value, written);
  *length = written;
  return 0;
}

template <class Value>
int take(Value& value, const void* from, socklen_t length) {
  if (length < sizeof value) return failed(EINVAL);
  if (is_bad(from, sizeof value)) return failed(EFAULT);
  std::memcpy(&value, from, sizeof value);
  return 0;
}

int socket_option(Socket& socket, int name, void* to, socklen_t* length) {
  switch (name) {
    case SO_ERROR: {
      const int code = take_error(socket, 0);
      program().show_changed();
      return give(code, to, length);
    }
    case SO_TYPE:
      return give(int{SOCK_STREAM}, to, length);
    case SO_DOMAIN:
      return give(socket.family, to, length);
    case SO_PROTOCOL:
      return give(int{IPPROTO_TCP}, to, length);
    case SO_ACCEPTCONN:
      return give(static_cast<int>(socket.listener && !socket.unconnected), to, length);
    case SO_KEEPALIVE:
      return give(socket.keepalive, to, length);
    case SO_REUSEADDR:
      return give(socket.reuse_address, to, length);
    case SO_REUSEPORT:
      return give(socket.reuse_port, to, length);
    case SO_RCVLOWAT:
      return give(socket.receive_low_water, to, length);
    case SO_SNDLOWAT:
      return give(int{1}, to, length);
    case SO_SNDBUF:
      return give(socket.send_buffer, to, length);
    case SO_RCVBUF:
      return give(socket.receive_buffer, to, length);
    case SO_RCVTIMEO:
      return give(socket.receive_timeout, to, length);
    case SO_SNDTIMEO:
      return give(socket.send_timeout, to, length);
    case SO_LINGER:
      return give(socket.lingers, to, length);
    default:
      return failed(ENOPROTOOPT);
  }
}

tcp_info info_of(const Socket& socket) {
  const auto look = program().look(socket.handle);
  const Role role = socket.unconnected ? Role::unconnected : socket.listener ? Role::listener : Role::connection;
  return info_of(role, look ? &*look : nullptr);
}

int tcp_option(Socket& socket, int name, void* to, socklen_t* length) {
  switch (name) {
    case TCP_NODELAY:
      return give(socket.no_delay, to, length);
    case TCP_CORK:
      return give(socket.cork, to, length);
    case TCP_KEEPIDLE:
      return give(socket.keepalive_idle_s, to, length);
    case TCP_KEEPINTVL:
      return give(socket.keepalive_interval_s, to, length);
    case TCP_KEEPCNT:
      return give(socket.keepalive_probes, to, length);
    case TCP_USER_TIMEOUT:
      return give(socket.user_timeout_ms, to, length);
    case TCP_CONGESTION:
      return give(congestion_name(socket.congestion, program().area()), to, length);
    case TCP_INFO:
      return give(info_of(socket), to, length);
    case TCP_MAXSEG:
      return give(static_cast<int>(info_of(socket).tcpi_snd_mss), to, length);
    default:
      return failed(ENOPROTOOPT);
  }
}

// A listener's connections get its settings when they are accepted.
void tell_settings(Socket& socket) {
  if (!socket.listener) program().area().set_flow_settings(socket.handle, socket.flow_settings());
}

// A number within bounds, which the agent is told.
int take_number(Socket& socket, int& setting, const void* from, socklen_t length, int least, int most) {
  int value = 0;
  if (take(value, from, length) != 0) return -1;
  if (value < least || value > most) return failed(EINVAL);
  setting = value;
  tell_settings(socket);
  return 0;
}

int take_congestion(Socket& socket, const void* from, socklen_t length) {
  if (length < 1) return failed(EINVAL);
  const std::size_t bytes = std::min<std::size_t>(length, sizeof(CongestionName) - 1);
  if (is_bad(from, bytes)) return failed(EFAULT);
  const auto choice = congestion_choice({static_cast<const char*>(from), bytes}, program().area());
  if (choice.error != 0) return failed(choice.error);
  socket.congestion = choice.congestion;
  tell_settings(socket);
  return 0;
}

int take_hint(Socket& socket, const Hint& hint, const void* from, socklen_t length) {
  const int set = set_hint(socket.hints, hint, socket.family, from, length, !program().confined());
  if (set == 0 && is_traffic_class(hint)) tell_settings(socket);
  return set;
}

int set_tcp_option(Socket& socket, int name, const void* from, socklen_t length) {
  switch (name) {
    case TCP_NODELAY:
      return take(socket.no_delay, from, length);
    case TCP_CORK:
      return take_number(socket, socket.cork, from, length, INT_MIN, INT_MAX);
    case TCP_KEEPIDLE:
      return take_number(socket, socket.keepalive_idle_s, from, length, 1, keepalive_s_max);
    case TCP_KEEPINTVL:
      return take_number(socket, socket.keepalive_interval_s, from, length, 1, keepalive_s_max);
    case TCP_KEEPCNT:
      return take_number(socket, socket.keepalive_probes, from, length, 1, keepalive_probes_max);
    case TCP_USER_TIMEOUT:
      return take_number(socket, socket.user_timeout_ms, from, length, 0, INT_MAX);
    case TCP_CONGESTION:
      return take_congestion(socket, from, length);
    default:
      return failed(ENOPROTOOPT);
  }
}

// Rings do not change their size: a new buffer size is accepted without effect, as beyond the kernel's limits.
int set_socket_option(Socket& socket, int name, const void* from, socklen_t length) {
  int ignored = 0;
  switch (name) {
    case SO_KEEPALIVE:
      return take_number(socket, socket.keepalive, from, length, INT_MIN, INT_MAX);
    case SO_REUSEADDR:
      return take(socket.reuse_address, from, length);
    case SO_REUSEPORT:
      return take(socket.reuse_port, from, length);
    case SO_RCVLOWAT:
      if (take(ignored, from, length) != 0) return -1;
      socket.set_receive_low_water(ignored);
      program().show(socket);
      return 0;
    case SO_SNDBUF:
    case SO_RCVBUF:
      return take(ignored, from, length);
    case SO_RCVTIMEO:
      return take(socket.receive_timeout, from, length);
    case SO_SNDTIMEO:
      return take(socket.send_timeout, from, length);
    case SO_LINGER:
      return take(socket.lingers, from, length);
    default:
      return failed(ENOPROTOOPT);
  }
}

int ipv6_option(const Socket& socket, int name, void* to, socklen_t* length) {
  switch (name) {
    case IPV6_V6ONLY:
      return give(socket.ipv6_only, to, length);
    case IPV6_ADDRFORM:
      return info_of(socket).tcpi_state == TCP_ESTABLISHED ? give(socket.family, to, length) : failed(ENOTCONN);
    default:
      return failed(ENOPROTOOPT);
  }
}

// A connection of IPv4 becomes a socket of IPv4 (RFC 3493, 5.1; the option is that of RFC 2553).
int become_ipv4(Socket& socket) {
  const auto look = program().look(socket.handle);
  if (info_of(socket).tcpi_state != TCP_ESTABLISHED || !look) return failed(ENOTCONN);
  if (socket.ipv6_only != 0 || !look->remote.address.is_v4()) return failed(EADDRNOTAVAIL);
  socket.family = AF_INET;
  return 0;
}

int set_ipv6_option(Socket& socket, int name, const void* from, socklen_t length) {
  int value = 0;
  switch (name) {
    case IPV6_V6ONLY:
      // Only before a socket has a port: then also after an attempt to connect that failed.
      if (!socket.unconnected || socket.bound.port != 0) return failed(EINVAL);
      if (take(value, from, length) != 0) return -1;
      socket.ipv6_only = value != 0 ? 1 : 0;
      return 0;
    case IPV6_ADDRFORM:
      if (take(value, from, length) != 0) return -1;
      return value == AF_INET ? become_ipv4(socket) : failed(EINVAL);
    default:
      return failed(ENOPROTOOPT);
  }
}

int name_of(const Socket& socket, bool peer, sockaddr* to, socklen_t* length) {
  const auto look = program().look(socket.handle);
  if (!look) return failed(EBADF);
  if (peer && (socket.listener || look->remote.port == 0 || !look->connected)) return failed(ENOTCONN);
  return write_address(peer ? look->remote : socket.listener ? socket.bound : look->local, socket.family, to, length);
}

}  // namespace

}  // namespace offpath::sockets

using namespace offpath::sockets;

OFP_CALL int getsockopt(int fd, int level, int name, void* to, socklen_t* length) noexcept {
  const Use socket = descriptors().find(fd);
  if (!socket) return kernel::getsockopt(fd, level, name, to, length);
  if (is_bad(length, sizeof *length)) return failed(EFAULT);
  if (static_cast<int>(*length) < 0) return failed(EINVAL);
  if (const auto hint = find_hint(level, name, socket->family)) return give(socket->hints.of(*hint), to, length);
  if (level == SOL_SOCKET) return socket_option(*socket, name, to, length);
  if (level == IPPROTO_IPV6 && socket->family == AF_INET6) return ipv6_option(*socket, name, to, length);
  return level == IPPROTO_TCP ? tcp_option(*socket, name, to, length) : failed(unknown_option(level, socket->family));
}

OFP_CALL int setsockopt(int fd, int level, int name, const void* from, socklen_t length) noexcept {
  const Use socket = descriptors().find(fd);
  // A socket that was bound to the agent's address has a port, which the kernel does not know.
  if (!socket && level == IPPROTO_IPV6 && name == IPV6_V6ONLY && descriptors().bound(fd)) return failed(EINVAL);
  if (!socket) {
    const int set = kernel::setsockopt(fd, level, name, from, length);
    if (set == 0 && level == IPPROTO_TCP && name == TCP_CONGESTION) descriptors().note_congestion(fd);
    return set;
  }
  if (static_cast<int>(length) < 0) return failed(EINVAL);
  if (const auto hint = find_hint(level, name, socket->family)) return take_hint(*socket, *hint, from, length);
  if (level == SOL_SOCKET) return set_socket_option(*socket, name, from, length);
  if (level == IPPROTO_IPV6 && socket->family == AF_INET6) return set_ipv6_option(*socket, name, from, length);
  return level == IPPROTO_TCP ? set_tcp_option(*socket, name, from, length) : failed(ENOPROTOOPT);
}

OFP_CALL int getsockname(int fd, sockaddr* to, socklen_t* length) noexcept {
  if (const Use socket = descriptors().find(fd)) return name_of(*socket, false, to, length);
  if (const auto bound = descriptors().bound(fd)) {
    int family = AF_INET;
    socklen_t room = sizeof family;
    kernel::getsockopt(fd, int{SOL_SOCKET}, int{SO_DOMAIN}, static_cast<void*>(&family), &room);
    return write_address(*bound, family, to, length);
  }
  return kernel::getsockname(fd, to, length);
}

OFP_CALL int getpeername(int fd, sockaddr* to, socklen_t* length) noexcept {
  const Use socket = descriptors().find(fd);
  return socket ? name_of(*socket, true, to, length) : kernel::getpeername(fd, to, length);
}

OFP_CALL int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  const Use socket = descriptors().find(fd);
  if (socket && (request == FIONBIO || request == FIONREAD) && is_bad(argument, sizeof(int))) return failed(EFAULT);
  if (socket && request == FIONBIO) socket->non_blocking = *static_cast<const int*>(argument) != 0;
  if (!socket || request != FIONREAD) return kernel::ioctl(fd, request, argument);
  const auto look = program().look(socket->handle);
  *static_cast<int*>(argument) = look ? static_cast<int>(look->unread) : 0;
  return 0;
}
