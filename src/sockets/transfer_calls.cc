// read, write, recv, send and their variants.
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "sockets/calls.h"
#include "sockets/kernel.h"
#include "sockets/transfer.h"

using namespace offpath;
using namespace offpath::sockets;

namespace {

// For copies through the stack; callers expect that a call may transfer less than asked for.
using Piece = std::array<std::byte, 65'536>;

constexpr std::size_t parts_max = 1024;  // UIO_MAXIOV

// Why the kernel would refuse these parts; 0: it would not. Some calls count them by a signed number.
[[nodiscard]] int refusal(const iovec* parts, std::size_t count, int too_many) {
  if (count > parts_max) return too_many;
  if (is_bad(parts, count * sizeof *parts)) return EFAULT;
  const auto is_negative = [](const iovec& part) { return static_cast<ssize_t>(part.iov_len) < 0; };
  return std::any_of(parts, parts + count, is_negative) ? EINVAL : 0;
}
[[nodiscard]] int refusal(const iovec* parts, int count) {
  return refusal(parts, static_cast<unsigned>(count), EINVAL);
}
[[nodiscard]] int refusal(const msghdr* message) {
  if (is_bad(message, sizeof *message)) return EFAULT;
  return refusal(message->msg_iov, message->msg_iovlen, EMSGSIZE);
}

std::array<iovec, 1> one(const void* bytes, std::size_t length) { return {{{const_cast<void*>(bytes), length}}}; }

// Takes from the socket only the bytes that the pipe took.
ssize_t splice_from(int fd, Socket& socket, int pipe, std::size_t count, bool at_once) {
  Piece bytes;
  const ssize_t there =
      receive(fd, socket, one(bytes.data(), std::min(count, bytes.size())), MSG_PEEK | (at_once ? MSG_DONTWAIT : 0));
  if (there <= 0) return there;
  const ssize_t written = kernel::write(pipe, static_cast<const void*>(bytes.data()), static_cast<std::size_t>(there));
  return written <= 0
             ? written
             : receive(fd, socket, one(bytes.data(), static_cast<std::size_t>(written)), MSG_WAITALL | MSG_DONTWAIT);
}

// Takes no more from the pipe than there is room for, because it cannot be put back.
ssize_t splice_to(int pipe, int fd, Socket& socket, std::size_t count, bool at_once) {
  Piece bytes;
  const auto room_of = [&]() -> std::size_t {
    const auto look = program().look(socket.handle);
    return look ? look->room : 0;
  };
  std::size_t room = room_of();
  while (room == 0) {
    if (at_once || returns_at_once(socket, 0)) return failed(EAGAIN);
    socket.hide_writable(fd, program().area());
    if (const int code = wait_for(socket, POLLOUT, socket.send_timeout); code != 0) return failed(code);
    if (program().lost()) return failed(ECONNRESET);
    room = room_of();
  }
  pollfd filled{pipe, POLLIN, 0};
  const timespec now{};
  if (at_once && kernel::ppoll(&filled, nfds_t{1}, &now, static_cast<const sigset_t*>(nullptr)) == 0)
    return failed(EAGAIN);
  const ssize_t got = kernel::read(pipe, static_cast<void*>(bytes.data()), std::min({count, room, bytes.size()}));
  for (ssize_t sent = 0; got > 0 && sent < got;) {
    const ssize_t more =
        offpath::sockets::send(fd, socket, one(bytes.data() + sent, static_cast<std::size_t>(got - sent)), 0);
    if (more > 0)
      sent += more;
    else if (errno != EAGAIN)
      return -1;
    else if (const int code = wait_for(socket, POLLOUT, {}); code != 0 && code != EINTR)
      return failed(code);  // another thread took the room
  }
  return got;
}

}  // namespace

OFP_CALL ssize_t recv(int fd, void* to, std::size_t length, int flags) {
  const Use socket = descriptors().find(fd);
  return socket ? receive(fd, *socket, one(to, length), flags) : kernel::recv(fd, to, length, flags);
}

OFP_CALL ssize_t read(int fd, void* to, std::size_t length) {
  const Use socket = descriptors().find(fd);
  return socket ? receive(fd, *socket, one(to, length), 0) : kernel::read(fd, to, length);
}

OFP_CALL ssize_t recvfrom(int fd, void* to, std::size_t length, int flags, sockaddr* from, socklen_t* from_length) {
  const Use socket = descriptors().find(fd);
  if (!socket) return kernel::recvfrom(fd, to, length, flags, from, from_length);
  if (from_length != nullptr) *from_length = 0;  // like the kernel's TCP
  return receive(fd, *socket, one(to, length), flags);
}

OFP_CALL ssize_t readv(int fd, const iovec* parts, int count) {
  const Use socket = descriptors().find(fd);
  if (!socket) return kernel::readv(fd, parts, count);
  if (const int code = refusal(parts, count)) return failed(code);
  return receive(fd, *socket, {parts, static_cast<std::size_t>(count)}, 0);
}

OFP_CALL ssize_t recvmsg(int fd, msghdr* message, int flags) {
  const Use socket = descriptors().find(fd);
  if (!socket) return kernel::recvmsg(fd, message, flags);
  if (const int code = refusal(message)) return failed(code);
  message->msg_namelen = 0;
  message->msg_controllen = 0;
  message->msg_flags = 0;
  return receive(fd, *socket, {message->msg_iov, message->msg_iovlen}, flags);
}

OFP_CALL ssize_t send(int fd, const void* from, std::size_t length, int flags) {
  const Use socket = descriptors().find(fd);
  return socket ? offpath::sockets::send(fd, *socket, one(from, length), flags) : kernel::send(fd, from, length, flags);
}

OFP_CALL ssize_t write(int fd, const void* from, std::size_t length) {
  const Use socket = descriptors().find(fd);
  return socket ? offpath::sockets::send(fd, *socket, one(from, length), 0) : kernel::write(fd, from, length);
}

OFP_CALL ssize_t sendto(int fd, const void* from, std::size_t length, int flags, const sockaddr* to,
                        socklen_t to_length) {
  const Use socket = descriptors().find(fd);
  return socket ? offpath::sockets::send(fd, *socket, one(from, length), flags)
                : kernel::sendto(fd, from, length, flags, to, to_length);
}

OFP_CALL ssize_t writev(int fd, const iovec* parts, int count) {
  const Use socket = descriptors().find(fd);
  if (!socket) return kernel::writev(fd, parts, count);
  if (const int code = refusal(parts, count)) return failed(code);
  return offpath::sockets::send(fd, *socket, {parts, static_cast<std::size_t>(count)}, 0);
}

OFP_CALL ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  const Use socket = descriptors().find(fd);
  if (!socket) return kernel::sendmsg(fd, message, flags);
  if (const int code = refusal(message)) return failed(code);
  return offpath::sockets::send(fd, *socket, {message->msg_iov, message->msg_iovlen}, flags);
}

// Each message gets the bytes that are there. The time limit is checked between messages, as in the kernel.
OFP_CALL int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* limit) {
  if (!descriptors().find(fd)) return kernel::recvmmsg(fd, messages, count, flags, limit);
  const TimeNs deadline =
      limit == nullptr ? never : deadline_after(monotonic_ns(), limit->tv_sec * second_ns + limit->tv_nsec);
  unsigned done = 0;
  while (done < count) {
    const bool waits = done == 0 || (flags & MSG_WAITFORONE) == 0;
    const ssize_t got = recvmsg(fd, &messages[done].msg_hdr, (flags & ~MSG_WAITFORONE) | (waits ? 0 : MSG_DONTWAIT));
    if (got < 0) return done > 0 ? static_cast<int>(done) : -1;
    messages[done++].msg_len = static_cast<unsigned>(got);
    if (got == 0 || monotonic_ns() >= deadline) break;
  }
  return static_cast<int>(done);
}

OFP_CALL int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  if (!descriptors().find(fd)) return kernel::sendmmsg(fd, messages, count, flags);
  for (unsigned done = 0; done < count; ++done) {
    const ssize_t sent = sendmsg(fd, &messages[done].msg_hdr, flags);
    if (sent < 0) return done > 0 ? static_cast<int>(done) : -1;
    messages[done].msg_len = static_cast<unsigned>(sent);
  }
  return static_cast<int>(count);
}

OFP_CALL ssize_t splice(int from, off64_t* from_at, int to, off64_t* to_at, std::size_t count, unsigned flags) {
  const Use source = descriptors().find(from), sink = descriptors().find(to);
  if (!source && !sink) return kernel::splice(from, from_at, to, to_at, count, flags);
  if (from_at != nullptr || to_at != nullptr) return failed(ESPIPE);
  if (source && sink) return failed(EINVAL);  // one of the two must be a pipe
  const bool at_once = (flags & SPLICE_F_NONBLOCK) != 0;
  return source ? splice_from(from, *source, to, count, at_once) : splice_to(from, to, *sink, count, at_once);
}

OFP_CALL ssize_t sendfile(int fd, int file, off_t* offset, std::size_t count) noexcept {
  const Use socket = descriptors().find(fd);
  if (!socket) return kernel::sendfile(fd, file, offset, count);
  Piece bytes;
  const off_t at = offset != nullptr ? *offset : ::lseek(file, 0, SEEK_CUR);
  const ssize_t got = ::pread(file, bytes.data(), std::min(count, bytes.size()), at);
  if (got <= 0) return got;
  const ssize_t sent = offpath::sockets::send(fd, *socket, one(bytes.data(), static_cast<std::size_t>(got)), 0);
  if (sent <= 0) return sent;
  if (offset != nullptr)
    *offset = at + sent;
  else
    ::lseek(file, at + sent, SEEK_SET);
  return sent;
}

// For large files; the same on 64-bit systems.
OFP_CALL ssize_t sendfile64(int fd, int file, off64_t* offset, std::size_t count) noexcept {
  return sendfile(fd, file, offset, count);
}

// The functions that -D_FORTIFY_SOURCE calls instead.
OFP_CALL ssize_t __recv_chk(int fd, void* to, std::size_t length, std::size_t room, int flags) {
  if (length > room) std::abort();
  return recv(fd, to, length, flags);
}

OFP_CALL ssize_t __read_chk(int fd, void* to, std::size_t length, std::size_t room) {
  if (length > room) std::abort();
  return read(fd, to, length);
}

OFP_CALL ssize_t __recvfrom_chk(int fd, void* to, std::size_t length, std::size_t room, int flags, sockaddr* from,
                                socklen_t* from_length) {
  if (length > room) std::abort();
  return recvfrom(fd, to, length, flags, from, from_length);
}
