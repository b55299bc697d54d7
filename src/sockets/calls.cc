#include "sockets/calls.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "sockets/kernel_terms.h"

namespace offpath::sockets {

int failed(int code) noexcept {
  errno = code;
  return -1;
}

bool returns_at_once(const Socket& socket, int flags) noexcept {
  return (flags & MSG_DONTWAIT) != 0 || socket.non_blocking.load(std::memory_order_relaxed);
}

std::uint32_t events_of(const Socket& socket, const SocketArea::Look& look) noexcept {
  if (program().lost()) return EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM | EPOLLRDHUP | EPOLLHUP | EPOLLERR;
  const std::uint32_t error = look.error != wire::TcpError::none && !socket.error_told ? std::uint32_t{EPOLLERR} : 0;
  if (socket.unconnected.load(std::memory_order_relaxed)) return EPOLLOUT | EPOLLWRNORM | EPOLLHUP | error;
  std::uint32_t events = error;
  if (socket.is_readable(look)) events |= EPOLLIN | EPOLLRDNORM;
  if (socket.listener) return events;
  if (look.writable) events |= EPOLLOUT | EPOLLWRNORM;
  if (look.finished || socket.reads_ended) events |= EPOLLIN | EPOLLRDNORM | EPOLLRDHUP;
  if (look.closed) events |= EPOLLHUP | EPOLLRDHUP;
  return events;
}

namespace {

class Blocked {
 public:
  explicit Blocked(Socket& socket) { program().begin_blocking(socket); }
  ~Blocked() { program().end_blocking(); }
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;
};

// Sleeps until `is_ready`, which is asked for each new state of the socket. Returns 0 or an errno: EINTR, or ETIMEDOUT.
template <class IsReady>
int sleep_until(Socket& socket, const timespec* until, const IsReady& is_ready) {
  SocketArea& area = program().area();
  const channel::SleepWord word = area.sleep_word(socket.handle);
  const Blocked here(socket);
  for (;;) {
    auto look = program().look(socket.handle);
    if (!look || program().lost() || is_ready(*look)) return 0;
    const auto before = word.begin();
    look = program().look(socket.handle);
    if (!look || program().lost() || is_ready(*look)) return 0;
    const int code = word.sleep(before, until);
    if (code == EINTR || code == ETIMEDOUT) return code;
  }
}

[[nodiscard]] timespec time_of(TimeNs at) noexcept { return {at / second_ns, at % second_ns}; }

}  // namespace

int wait_for(Socket& socket, short events, const timeval& limit, std::uint64_t seen) {
  const bool limited = limit.tv_sec != 0 || limit.tv_usec != 0;
  const timespec until = time_of(monotonic_ns() + limit.tv_sec * second_ns + limit.tv_usec * microsecond_ns);
  const int code = sleep_until(socket, limited ? &until : nullptr, [&](const SocketArea::Look& look) {
    const bool readable = seen == 0 ? look.readable : look.unread > seen || look.finished || look.closed;
    return ((events & POLLIN) != 0 && (readable || socket.reads_ended)) || ((events & POLLOUT) != 0 && look.writable);
  });
  return code == ETIMEDOUT ? EAGAIN : code;
}

// The bits of poll's events are those of epoll's. With a limit, however late, a signal handler interrupts the sleep.
std::optional<int> poll_one(pollfd& watched, TimeNs wait_ns) {
  static_assert(POLLIN == EPOLLIN && POLLOUT == EPOLLOUT && POLLRDHUP == EPOLLRDHUP && POLLHUP == EPOLLHUP &&
                POLLERR == EPOLLERR && POLLRDNORM == EPOLLRDNORM && POLLWRNORM == EPOLLWRNORM);
  const Use socket = descriptors().find(watched.fd);
  if (!socket || program().left_out() || !program().area().has_sleep_words()) return std::nullopt;
  constexpr TimeNs latest = never / 2;
  const timespec until = time_of(std::min(deadline_after(monotonic_ns(), wait_ns), latest));
  const auto told = [&](const SocketArea::Look& look) {
    return static_cast<short>(events_of(*socket, look) &
                              (static_cast<std::uint32_t>(watched.events) | EPOLLERR | EPOLLHUP));
  };
  const auto is_ready = [&](const SocketArea::Look& look) { return told(look) != 0; };
  if (wait_ns > 0 && sleep_until(*socket, &until, is_ready) == EINTR) return failed(EINTR);
  const auto look = program().look(socket->handle);
  watched.revents = look ? told(*look) : static_cast<short>(POLLHUP);
  return watched.revents != 0 ? 1 : 0;
}

int take_error(Socket& socket, int otherwise) {
  if (std::exchange(socket.error_told, true)) return otherwise;
  if (program().lost()) return ECONNRESET;
  const auto look = program().look(socket.handle);
  const int code = look ? errno_of(look->error) : 0;
  if (code == 0) socket.error_told = false;
  return code != 0 ? code : otherwise;
}

}  // namespace offpath::sockets
