#include "sockets/calls.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

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

namespace {

// A futex restarts after a handler as the kernel's calls do: with SA_RESTART, unless there is a limit.
int sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t value, const timespec* until) noexcept {
  return ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, value, until, nullptr, FUTEX_BITSET_MATCH_ANY) == 0
             ? 0
             : errno;
}

class Waiting {
 public:
  explicit Waiting(OwnPart& own) noexcept : own_(own) { own_.waiting.fetch_add(1); }
  ~Waiting() { own_.waiting.fetch_sub(1); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  OwnPart& own_;
};

}  // namespace

int wait_for(Socket& socket, short events, const timeval& limit, std::uint64_t seen) {
  OwnPart& own = socket.own();
  const Waiting here(own);
  program().listen_for(socket);
  const bool limited = limit.tv_sec != 0 || limit.tv_usec != 0;
  const TimeNs deadline = monotonic_ns() + limit.tv_sec * second_ns + limit.tv_usec * microsecond_ns;
  const timespec until{deadline / second_ns, deadline % second_ns};
  for (;;) {
    const std::uint32_t before = own.changes.load();
    const auto look = program().look(socket.handle);
    if (!look || program().lost()) return 0;
    const bool readable = seen == 0 ? look->readable : look->unread > seen || look->finished || look->closed;
    if (((events & POLLIN) != 0 && (readable || socket.reads_ended)) || ((events & POLLOUT) != 0 && look->writable))
      return 0;
    const int code = sleep_on(own.changes, before, limited ? &until : nullptr);
    if (code == EINTR) return EINTR;
    if (code == ETIMEDOUT) return EAGAIN;
  }
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
