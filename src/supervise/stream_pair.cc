#include "supervise/stream_pair.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace offpath::supervise {

namespace {

// The kernel doubles it. A quarter must hold the piece of which one byte stays unread (36 KiB at most), or that byte
// alone would make the program's end not writable.
constexpr int buffer_bytes = 104 << 10;
constexpr std::array<std::byte, 32 << 10> filling{};

}  // namespace

Result<StreamPair::Made> StreamPair::make(bool non_blocking) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return fail_errno(errno, "socketpair");
  Made made{.pair = {}, .programs = Fd(ends[0]), .inode = 0};
  made.pair.own_ = Fd(ends[1]);
  for (const int fd : ends) ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
  const int on = 1;  // a byte sent with MSG_OOB is taken like any other
  ::setsockopt(ends[1], SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
  struct stat status{};
  if (::fstat(ends[0], &status) != 0) return fail_errno(errno, "fstat");
  made.inode = status.st_ino;
  if (::send(ends[0], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) return fail_errno(errno, "send");
  if (non_blocking && ::fcntl(ends[0], F_SETFL, O_RDWR | O_NONBLOCK) != 0) return fail_errno(errno, "fcntl");
  return made;
}

std::size_t StreamPair::waiting() const noexcept {
  int bytes = 0;
  if (::ioctl(own_.get(), SIOCINQ, &bytes) != 0 || bytes <= 0) return 0;
  return static_cast<std::size_t>(bytes) - (kept_ ? 1 : 0);
}

// The byte that stays is the last one taken: it is read here, and removed by the next take.
std::size_t StreamPair::take(MutableBytes to) noexcept {
  if (to.empty()) return 0;
  std::byte kept;
  const std::array<iovec, 2> parts{iovec{&kept, kept_ ? 1u : 0u}, iovec{to.data(), to.size() - 1}};
  std::size_t taken = 0;
  if (kept_ || to.size() > 1) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    const ssize_t got = ::recvmsg(own_.get(), &message, MSG_DONTWAIT);
    if (got <= 0) return 0;
    taken = static_cast<std::size_t>(got) - (std::exchange(kept_, false) ? 1 : 0);
  }
  if (::recv(own_.get(), to.data() + taken, 1, MSG_DONTWAIT | MSG_PEEK) != 1) return taken;
  kept_ = true;
  return taken + 1;
}

StreamPair::Given StreamPair::give(Bytes from) noexcept {
  const ssize_t given = ::send(own_.get(), from.data(), from.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (given >= 0) return {static_cast<std::size_t>(given), true};
  return {0, errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM};
}

void StreamPair::end_stream() noexcept { ::shutdown(own_.get(), SHUT_WR); }

void StreamPair::fill(int programs) noexcept {
  for (;;) {
    const ssize_t sent = ::send(programs, filling.data(), filling.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent <= 0) return;
    filling_ += static_cast<std::size_t>(sent);
  }
}

// The last of these bytes becomes the one that stays unread.
void StreamPair::drain() noexcept {
  std::array<std::byte, sizeof filling> bytes;
  while (filling_ > 0) {
    const ssize_t got = ::recv(own_.get(), bytes.data(), std::min(filling_, bytes.size()), MSG_DONTWAIT);
    if (got <= 0) return;
    filling_ -= static_cast<std::size_t>(got);
  }
}

void StreamPair::show_readable() noexcept {
  if (!readable_ && ::send(own_.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1) readable_ = true;
}

void StreamPair::hide_readable(int programs) noexcept {
  char byte;
  if (readable_ && ::recv(programs, &byte, 1, MSG_DONTWAIT) == 1) readable_ = false;
}

bool StreamPair::was_left_unread() const noexcept {
  int code = 0;
  socklen_t length = sizeof code;
  return ::getsockopt(own_.get(), SOL_SOCKET, SO_ERROR, &code, &length) == 0 && code == ECONNRESET;
}

void StreamPair::close() noexcept {
  std::array<std::byte, sizeof filling> bytes;
  while (own_ && ::recv(own_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
  }
  own_.reset();
}

void StreamPair::reset() noexcept { own_.reset(); }

}  // namespace offpath::supervise
