// Sends and receives bytes of an offloaded socket, for every call.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <span>

#include "sockets/socket.h"

namespace offpath::sockets {

// Like recvmsg and sendmsg with these flags: the number of bytes, or -1 with errno.
[[nodiscard]] ssize_t receive(int fd, Socket& socket, std::span<const iovec> parts, int flags);
[[nodiscard]] ssize_t send(int fd, Socket& socket, std::span<const iovec> parts, int flags);

}  // namespace offpath::sockets
