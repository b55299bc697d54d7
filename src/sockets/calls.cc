#include "sockets/calls.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "sockets/kernel.h"

namespace offpath::sockets {

int errno_of(wire::TcpError error) noexcept {
  switch (error) {
    case wire::TcpError::none: return 0;
    case wire::TcpError::refused: return ECONNREFUSED;
    case wire::TcpError::reset: return ECONNRESET;
    case wire::TcpError::timed_out: return ETIMEDOUT;
    case wire::TcpError::unreachable: return EHOSTUNREACH;
    case wire::TcpError::address_in_use: return EADDRINUSE;
    case wire::TcpError::no_room: return ENOBUFS;
    case wire::TcpError::denied: return EACCES;
  }
  return EIO;
}

int failed(int code) noexcept {
  errno = code;
  return -1;
}

bool returns_at_once(const Socket& socket, int flags) noexcept { return (flags & MSG_DONTWAIT) != 0 || socket.non_blocking.load(std::memory_order_relaxed); }

int wait_for(int fd, Socket& socket, short events, const timeval& limit) noexcept {
  program().begin_showing(fd, socket);
  const bool limited = limit.tv_sec != 0 || limit.tv_usec != 0;
  const timespec time{limit.tv_sec, limit.tv_usec * 1000};
  pollfd descriptor{fd, events, 0};
  const int ready = kernel::ppoll(&descriptor, nfds_t{1}, limited ? &time : static_cast<const timespec*>(nullptr), static_cast<const sigset_t*>(nullptr));
  if (ready < 0) return errno;
  return ready == 0 ? EAGAIN : 0;
}

int take_error(Socket& socket, int otherwise) {
  if (std::exchange(socket.error_told, true)) return otherwise;
  if (program().lost()) return ECONNRESET;
  const auto look = program().area().look(socket.handle);
  const int code = look ? errno_of(look->error) : 0;
  if (code == 0) socket.error_told = false;
  return code != 0 ? code : otherwise;
}

}  // namespace offpath::sockets
