// read, write, recv, send and their kin.
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

using namespace offpath::sockets;

namespace {

std::array<iovec, 1> one(const void* bytes, std::size_t length) { return {{{const_cast<void*>(bytes), length}}}; }

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
  if (from_length != nullptr) *from_length = 0;  // as the kernel's TCP does
  return receive(fd, *socket, one(to, length), flags);
}

OFP_CALL ssize_t readv(int fd, const iovec* parts, int count) {
  const Use socket = descriptors().find(fd);
  return socket ? receive(fd, *socket, {parts, static_cast<std::size_t>(count)}, 0) : kernel::readv(fd, parts, count);
}

OFP_CALL ssize_t recvmsg(int fd, msghdr* message, int flags) {
  const Use socket = descriptors().find(fd);
  if (!socket) return kernel::recvmsg(fd, message, flags);
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

OFP_CALL ssize_t sendto(int fd, const void* from, std::size_t length, int flags, const sockaddr* to, socklen_t to_length) {
  const Use socket = descriptors().find(fd);
  return socket ? offpath::sockets::send(fd, *socket, one(from, length), flags) : kernel::sendto(fd, from, length, flags, to, to_length);
}

OFP_CALL ssize_t writev(int fd, const iovec* parts, int count) {
  const Use socket = descriptors().find(fd);
  return socket ? offpath::sockets::send(fd, *socket, {parts, static_cast<std::size_t>(count)}, 0) : kernel::writev(fd, parts, count);
}

OFP_CALL ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  const Use socket = descriptors().find(fd);
  return socket ? offpath::sockets::send(fd, *socket, {message->msg_iov, message->msg_iovlen}, flags) : kernel::sendmsg(fd, message, flags);
}

OFP_CALL ssize_t sendfile(int fd, int file, off_t* offset, std::size_t count) noexcept {
  const Use socket = descriptors().find(fd);
  if (!socket) return kernel::sendfile(fd, file, offset, count);
  // One piece: less than was asked for is an answer that callers expect.
  std::array<std::byte, 65'536> bytes;
  const off_t at = offset != nullptr ? *offset : ::lseek(file, 0, SEEK_CUR);
  const ssize_t got = ::pread(file, bytes.data(), std::min(count, bytes.size()), at);
  if (got <= 0) return got;
  const ssize_t sent = offpath::sockets::send(fd, *socket, one(bytes.data(), static_cast<std::size_t>(got)), 0);
  if (sent <= 0) return sent;
  if (offset != nullptr) *offset = at + sent;
  else ::lseek(file, at + sent, SEEK_SET);
  return sent;
}

// With files of any size, which 64-bit systems always have.
OFP_CALL ssize_t sendfile64(int fd, int file, off64_t* offset, std::size_t count) noexcept { return sendfile(fd, file, offset, count); }

// The forms that -D_FORTIFY_SOURCE calls.
OFP_CALL ssize_t __recv_chk(int fd, void* to, std::size_t length, std::size_t room, int flags) {
  if (length > room) std::abort();
  return recv(fd, to, length, flags);
}

OFP_CALL ssize_t __read_chk(int fd, void* to, std::size_t length, std::size_t room) {
  if (length > room) std::abort();
  return read(fd, to, length);
}

OFP_CALL ssize_t __recvfrom_chk(int fd, void* to, std::size_t length, std::size_t room, int flags, sockaddr* from, socklen_t* from_length) {
  if (length > room) std::abort();
  return recvfrom(fd, to, length, flags, from, from_length);
}
