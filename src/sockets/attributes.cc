// Options, addresses and FIONREAD. Options that only hint are kept without effect; unknown ones are refused.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstring>

#include "sockets/addresses.h"
#include "sockets/calls.h"
#include "sockets/kernel.h"

namespace offpath::sockets {

namespace {

template <class Value>
int give(const Value& value, void* to, socklen_t* length) {
  std::memcpy(to, &value, std::min<std::size_t>(*length, sizeof value));
  *length = std::min<socklen_t>(*length, sizeof value);
  return 0;
}

template <class Value>
int take(Value& value, const void* from, socklen_t length) {
  if (length < sizeof value) return failed(EINVAL);
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
      return give(AF_INET, to, length);
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
    case SO_PRIORITY:
      return give(socket.priority, to, length);
    case SO_SNDBUF:
      return give(socket.send_buffer, to, length);
    case SO_RCVBUF:
      return give(socket.receive_buffer, to, length);
    case SO_RCVTIMEO:
      return give(socket.receive_timeout, to, length);
    case SO_SNDTIMEO:
      return give(socket.send_timeout, to, length);
    case SO_LINGER:
      return give(linger{socket.resets ? 1 : 0, 0}, to, length);
    default:
      return failed(ENOPROTOOPT);
  }
}

// As of the last event.
tcp_info info_of(const Socket& socket) {
  const auto look = program().look(socket.handle);
  tcp_info info{};
  info.tcpi_state = socket.unconnected      ? TCP_CLOSE
                    : socket.listener       ? TCP_LISTEN
                    : !look || look->closed ? TCP_CLOSE
                    : !look->connected      ? TCP_SYN_SENT
                    : look->finished        ? TCP_CLOSE_WAIT
                                            : TCP_ESTABLISHED;
  if (!look || look->mss == 0) return info;
  info.tcpi_snd_mss = info.tcpi_rcv_mss = info.tcpi_advmss = look->mss;
  info.tcpi_unacked = static_cast<std::uint32_t>((look->unacknowledged + look->mss - 1) / look->mss);
  info.tcpi_rtt = look->round_trip_us;
  info.tcpi_snd_cwnd = std::max(look->window / look->mss, 1u);
  info.tcpi_rcv_space = static_cast<std::uint32_t>(socket.receive_buffer);
  return info;
}

int tcp_option(Socket& socket, int name, void* to, socklen_t* length) {
  switch (name) {
    case TCP_NODELAY:
      return give(socket.no_delay, to, length);
    case TCP_CORK:
      return give(socket.cork, to, length);
    case TCP_QUICKACK:
      return give(socket.quick_ack, to, length);
    case TCP_KEEPIDLE:
      return give(socket.keepalive_idle_s, to, length);
    case TCP_KEEPINTVL:
      return give(socket.keepalive_interval_s, to, length);
    case TCP_KEEPCNT:
      return give(socket.keepalive_probes, to, length);
    case TCP_USER_TIMEOUT:
      return give(socket.user_timeout_ms, to, length);
    case TCP_INFO:
      return give(info_of(socket), to, length);
    case TCP_MAXSEG:
      return give(static_cast<int>(info_of(socket).tcpi_snd_mss), to, length);
    default:
      return failed(ENOPROTOOPT);
  }
}

// A number within bounds, which the agent is told.
int take_number(Socket& socket, int& setting, const void* from, socklen_t length, int least, int most) {
  int value = 0;
  if (take(value, from, length) != 0) return -1;
  if (value < least || value > most) return failed(EINVAL);
  setting = value;
  if (!socket.listener) program().area().set_flow_settings(socket.handle, socket.flow_settings());
  return 0;
}

int set_tcp_option(Socket& socket, int name, const void* from, socklen_t length) {
  switch (name) {
    case TCP_NODELAY:
      return take(socket.no_delay, from, length);
    case TCP_QUICKACK:
      return take(socket.quick_ack, from, length);
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
    case SO_PRIORITY:
      return take(socket.priority, from, length);
    case SO_SNDBUF:
    case SO_RCVBUF:
      return take(ignored, from, length);
    case SO_RCVTIMEO:
      return take(socket.receive_timeout, from, length);
    case SO_SNDTIMEO:
      return take(socket.send_timeout, from, length);
    case SO_LINGER: {
      linger value{};
      if (take(value, from, length) != 0) return -1;
      socket.resets = value.l_onoff != 0 && value.l_linger == 0;
      return 0;
    }
    default:
      return failed(ENOPROTOOPT);
  }
}

// A number of one byte or of four, as in ip(7).
int set_ip_option(Socket& socket, int name, const void* from, socklen_t length) {
  if (name != IP_TOS) return failed(ENOPROTOOPT);
  if (length >= sizeof(int)) return take(socket.type_of_service, from, length);
  if (length == 0) return failed(EINVAL);
  socket.type_of_service = *static_cast<const unsigned char*>(from);
  return 0;
}

int name_of(const Socket& socket, bool peer, sockaddr* to, socklen_t* length) {
  const auto look = program().look(socket.handle);
  if (!look) return failed(EBADF);
  if (peer && (socket.listener || look->remote.port == 0 || !look->connected)) return failed(ENOTCONN);
  write_address(peer ? look->remote : socket.listener ? socket.bound : look->local, to, length);
  return 0;
}

}  // namespace

}  // namespace offpath::sockets

using namespace offpath::sockets;

OFP_CALL int getsockopt(int fd, int level, int name, void* to, socklen_t* length) noexcept {
  const Use socket = descriptors().find(fd);
  if (!socket) return kernel::getsockopt(fd, level, name, to, length);
  if (level == SOL_SOCKET) return socket_option(*socket, name, to, length);
  if (level == IPPROTO_IP && name == IP_TOS) return give(socket->type_of_service, to, length);
  return level == IPPROTO_TCP ? tcp_option(*socket, name, to, length) : failed(ENOPROTOOPT);
}

OFP_CALL int setsockopt(int fd, int level, int name, const void* from, socklen_t length) noexcept {
  const Use socket = descriptors().find(fd);
  if (!socket) return kernel::setsockopt(fd, level, name, from, length);
  if (level == SOL_SOCKET) return set_socket_option(*socket, name, from, length);
  if (level == IPPROTO_IP) return set_ip_option(*socket, name, from, length);
  return level == IPPROTO_TCP ? set_tcp_option(*socket, name, from, length) : failed(ENOPROTOOPT);
}

OFP_CALL int getsockname(int fd, sockaddr* to, socklen_t* length) noexcept {
  if (const Use socket = descriptors().find(fd)) return name_of(*socket, false, to, length);
  if (const auto port = descriptors().bound(fd)) {
    write_address({program().policy().own, *port}, to, length);
    return 0;
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
  if (socket && request == FIONBIO) socket->non_blocking = *static_cast<const int*>(argument) != 0;
  if (!socket || request != FIONREAD) return kernel::ioctl(fd, request, argument);
  const auto look = program().look(socket->handle);
  *static_cast<int*>(argument) = look ? static_cast<int>(look->unread) : 0;
  return 0;
}
