// How descriptors come and go: close, shutdown, dup and its variants. In a child of vfork() only the kernel's table
// changes.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <utility>

#include "sockets/calls.h"
#include "sockets/epoll_sets.h"
#include "sockets/kernel.h"
#include "sockets/own_descriptors.h"

namespace offpath::sockets {

namespace {

// `made` is a new descriptor that names the same as `fd`; the socket that it named before is forgotten.
int also_at(int made, int fd) {
  if (made < 0 || made == fd) return made;
  if (!program().vforked()) epoll_sets().also_at(made, fd);
  Use use = descriptors().find(fd);
  if (!use || program().vforked()) {
    if (program().vforked()) return made;
    if (descriptors().find(made)) Descriptors::let_go(descriptors().remove(made));
    descriptors().copy_notes(made, fd);
    return made;
  }
  descriptors().put(made, std::move(use));
  return made;
}

// `put` gives a descriptor of the program's the number `to`. If one of this library's has it, that moves away first.
template <class Put>
int put_at(int to, const Put& put) {
  if (program().vforked()) return own_descriptors().has(to) ? failed(EBUSY) : put();  // numbers of the child's own
  for (int attempt = 0; attempt < 3; ++attempt) {
    {
      const auto turn = own_descriptors().program_puts();
      if (!own_descriptors().has(to)) return put();
    }
    if (!program().make_way(to) && !own_descriptors().lets_go(to)) break;
  }
  return failed(EBUSY);
}

void forget(unsigned from, unsigned to) {
  for (unsigned fd = from; fd <= to && fd < static_cast<unsigned>(descriptors().end()); ++fd) {
    Descriptors::let_go(descriptors().remove(static_cast<int>(fd)));
    epoll_sets().close(static_cast<int>(fd));
  }
}

}  // namespace

}  // namespace offpath::sockets

using namespace offpath::sockets;

OFP_CALL int close(int fd) {
  if (own_descriptors().has(fd) && !own_descriptors().lets_go(fd)) return failed(EBADF);
  Use use = descriptors().find(fd);
  if (use && program().vforked()) return kernel::close(fd);
  Use last = descriptors().remove(fd);
  epoll_sets().close(fd);
  const int done = kernel::close(fd);
  use = Use();
  Descriptors::let_go(std::move(last));
  return done;
}

OFP_CALL int close_range(unsigned from, unsigned to, int flags) noexcept {
  static auto* const call = kernel::next<int(unsigned, unsigned, int)>("close_range");
  if ((flags & CLOSE_RANGE_CLOEXEC) == 0 && !program().vforked()) forget(from, to);
  int done = 0;
  for (unsigned first = from;;) {  // skips this library's own
    const unsigned own = own_descriptors().next(first);
    if (own >= OwnDescriptors::numbers || own > to) return call(first, to, flags) != 0 ? -1 : done;
    if (own > first && call(first, own - 1, flags) != 0) done = -1;
    if (own == to) return done;
    first = own + 1;
  }
}

OFP_CALL void closefrom(int from) noexcept {
  static auto* const call = kernel::next<void(int)>("closefrom");
  if (close_range(static_cast<unsigned>(std::max(from, 0)), ~0u, 0) != 0) call(from);
}

OFP_CALL int shutdown(int fd, int how) noexcept {
  const Use socket = descriptors().find(fd);
  if (!socket) return kernel::shutdown(fd, how);
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return failed(EINVAL);
  if (program().left_out()) return failed(EOPNOTSUPP);
  if (socket->unconnected) return failed(ENOTCONN);
  const auto look = program().look(socket->handle);
  if (!look) return failed(ENOTCONN);
  if (socket->listener || !look->connected) {  // nothing is established: abandons it, and waiting threads learn it
    if (socket->listener && how == SHUT_WR) return 0;
    if (!program().area().stop(socket->handle)) return failed(ENOTCONN);
    socket->unconnected = true;
    program().show_changed();
    program().show(*socket);
    return 0;
  }
  if (how != SHUT_RD) static_cast<void>(program().area().finish(socket->handle));
  if (how != SHUT_WR) socket->reads_ended = true;
  program().show_changed();
  program().show(*socket);
  return 0;
}

OFP_CALL int dup(int fd) noexcept { return also_at(kernel::dup(fd), fd); }

OFP_CALL int dup2(int fd, int to) noexcept {
  if (fd == to || kernel::fcntl(fd, F_GETFD) < 0) return kernel::dup2(fd, to);
  return put_at(to, [&] { return also_at(kernel::dup2(fd, to), fd); });
}

OFP_CALL int dup3(int fd, int to, int flags) noexcept {
  if (fd == to || kernel::fcntl(fd, F_GETFD) < 0) return kernel::dup3(fd, to, flags);
  return put_at(to, [&] { return also_at(kernel::dup3(fd, to, flags), fd); });
}

OFP_CALL int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  const int done = kernel::fcntl(fd, command, argument);
  if (command == F_SETFL && done == 0)
    if (const Use socket = descriptors().find(fd))
      socket->non_blocking = (reinterpret_cast<std::intptr_t>(argument) & O_NONBLOCK) != 0;
  return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? also_at(done, fd) : done;
}

OFP_CALL int fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return fcntl(fd, command, argument);
}
