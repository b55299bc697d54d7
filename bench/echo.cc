#include "echo.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "machine.h"

namespace offpath::bench {

Result<std::unique_ptr<Echo>> Echo::start(int first_core, int second_core, Wait wait) {
  auto made = std::make_unique<Echo>();
  made->wait_ = wait;
  int to_first[2], to_second[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, to_first) != 0) return fail_errno(errno, "socketpair");
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, to_second) != 0) return fail_errno(errno, "socketpair");
  made->socket_ = Fd(to_first[0]);
  const Fd first(to_first[1]), first_out(to_second[0]), second(to_second[1]);
  made->children_[0] = ::fork();
  if (made->children_[0] == 0)
    made->pass_on(first_core, first.get(), first_out.get(), made->socket_.get(), second.get());
  made->children_[1] = ::fork();
  if (made->children_[1] == 0) made->pass_on(second_core, second.get(), -1, made->socket_.get(), first.get());
  return made;
}

Echo::~Echo() {
  socket_.reset();
  for (const pid_t child : children_)
    if (child > 0) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
}

Result<double> Echo::ask() {
  char bytes[message_bytes] = {};
  const std::uint64_t began = ticks();
  if (::send(socket_.get(), bytes, sizeof bytes, 0) != sizeof bytes || !receive(socket_.get(), bytes))
    return fail_errno(errno, "a socket of the peer");
  return double(ticks() - began) * ns_per_tick();
}

// True: a whole message.
bool Echo::receive(int socket, char* bytes) const {
  const TimeNs began = monotonic_ns();
  while (wait_ == Wait::spinning && monotonic_ns() - began < millisecond_ns) {
    const ssize_t got = ::recv(socket, bytes, message_bytes, MSG_DONTWAIT);
    if (got >= 0 || errno != EAGAIN) return got == message_bytes;
    if (monotonic_ns() - began > microsecond_ns) ::sched_yield();
  }
  return ::recv(socket, bytes, message_bytes, 0) == message_bytes;
}

// Passes data from `from` to `onward` and its answer back; without `onward` it is echoed.
void Echo::pass_on(int core, int from, int onward, int unused, int other_unused) const {
  ::close(unused);
  ::close(other_unused);
  if (!pin_to_core(core)) ::_exit(1);
  char bytes[message_bytes];
  while (receive(from, bytes)) {
    if (onward >= 0 && (::send(onward, bytes, sizeof bytes, 0) != sizeof bytes || !receive(onward, bytes))) break;
    if (::send(from, bytes, sizeof bytes, 0) != sizeof bytes) break;
  }
  ::_exit(0);
}

}  // namespace offpath::bench
