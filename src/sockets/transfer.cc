#include "sockets/transfer.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <csignal>

#include "sockets/calls.h"

namespace offpath::sockets {

namespace {

// The bytes of `parts` one after the other.
class Parts {
 public:
  explicit Parts(std::span<const iovec> parts) noexcept : left_(parts) { skip_empty(); }
  [[nodiscard]] bool done() const noexcept { return left_.empty(); }
  [[nodiscard]] MutableBytes next() const noexcept {
    return MutableBytes(static_cast<std::byte*>(left_.front().iov_base), left_.front().iov_len).subspan(at_);
  }
  void advance(std::size_t bytes) noexcept {
    at_ += bytes;
    skip_empty();
  }

 private:
  void skip_empty() noexcept {
    while (!left_.empty() && at_ == left_.front().iov_len) left_ = left_.subspan(1), at_ = 0;
  }
  std::span<const iovec> left_;
  std::size_t at_ = 0;
};

// Why this call can never succeed on this socket; 0: it can.
int refusal(const Socket& socket) {
  if (socket.listener) return ENOTCONN;
  return program().left_out() ? EOPNOTSUPP : 0;
}

// Whether a call fails with EFAULT: as in the kernel, a null pointer does no harm before there are bytes to copy.
bool is_fault(const Socket& socket, MutableBytes to, const SocketArea::Reading& reading) {
  if (reading.discards || !is_bad(to.data(), to.size())) return false;
  const auto look = program().look(socket.handle);
  return is_kernels(to.data(), to.size()) || (look && look->unread > reading.skip);
}

ssize_t broken(Socket& socket, int flags) {
  const int code = take_error(socket, EPIPE);
  if (code == EPIPE && (flags & MSG_NOSIGNAL) == 0) ::raise(SIGPIPE);
  return failed(code);
}

}  // namespace

ssize_t receive(int fd, Socket& socket, std::span<const iovec> given, int flags) {
  if ((flags & MSG_ERRQUEUE) != 0) return failed(EAGAIN);  // the error queue is always empty
  if (const int code = refusal(socket)) return failed(code);
  if ((flags & MSG_OOB) != 0) return failed(EINVAL);  // there is no urgent data
  SocketArea& area = program().area();
  SocketArea::Reading reading{.skip = 0, .peeks = (flags & MSG_PEEK) != 0, .discards = (flags & MSG_TRUNC) != 0};
  Parts parts(given);
  ssize_t total = 0;
  const auto wants_more = [&] { return (flags & MSG_WAITALL) != 0 || total < socket.receive_low_water; };
  while (!parts.done()) {
    const MutableBytes to = parts.next();
    if (is_fault(socket, to, reading)) return total > 0 ? total : failed(EFAULT);
    const auto got = area.receive(socket.handle, to, reading);
    if (got && *got > 0) {
      total += static_cast<ssize_t>(*got);
      if (reading.peeks)
        reading.skip += *got;
      else
        program().note_memory();
      const bool all = *got < to.size() && !wants_more();
      parts.advance(*got);
      if (all) break;
      continue;
    }
    const bool waits = !got && got.error().code == Error::would_block && !program().lost();
    if (waits) socket.hide_readable(fd, area);
    program().show_changed();
    if (total > 0 && (!wants_more() || !waits)) return total;
    if (got || socket.reads_ended) return total;
    if (!waits) {  // an error is returned once, then the end of the stream
      const int code = take_error(socket, socket.unconnected ? ENOTCONN : 0);
      return code != 0 ? failed(code) : 0;
    }
    if (returns_at_once(socket, flags)) return total > 0 ? total : failed(EAGAIN);
    if (reading.skip > 0)
      if (const auto look = area.known(socket.handle); !look || reading.skip >= look->receive_ring)
        return total;  // the ring is full: no more arrives until some is read
    if (const int code = wait_for(socket, POLLIN, socket.receive_timeout, reading.skip); code != 0)
      return total > 0 ? total : failed(code);
  }
  socket.hide_readable(fd, area);
  program().show_changed();
  return total;
}

ssize_t send(int fd, Socket& socket, std::span<const iovec> given, int flags) {
  if (const int code = refusal(socket)) return failed(code);
  if ((flags & MSG_OOB) != 0) return failed(EOPNOTSUPP);  // otherwise the urgent byte would become part of the stream
  SocketArea& area = program().area();
  Parts parts(given);
  ssize_t total = 0;
  while (!parts.done()) {
    const MutableBytes from = parts.next();
    if (is_bad(from.data(), from.size())) return total > 0 ? total : failed(EFAULT);
    const auto sent = area.send(socket.handle, from);
    if (sent) {
      total += static_cast<ssize_t>(*sent);
      program().note_memory();
      parts.advance(*sent);
      continue;
    }
    const bool waits = sent.error().code == Error::would_block && !program().lost();
    if (waits) {
      socket.times_full.fetch_add(1, std::memory_order_relaxed);
      socket.hide_writable(fd, area);
    }
    program().show_changed();
    if (!waits) return total > 0 ? total : broken(socket, flags);
    if (returns_at_once(socket, flags)) return total > 0 ? total : failed(EAGAIN);
    if (const int code = wait_for(socket, POLLOUT, socket.send_timeout); code != 0)
      return total > 0 ? total : failed(code);
  }
  // poll must not report room that is gone.
  socket.hide_writable(fd, area);
  program().show_changed();
  return total;
}

}  // namespace offpath::sockets
