// Descriptors that this process sends to another one over a Unix socket; received_fds.h is the other end.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/status.h"

namespace offpath {

inline constexpr std::size_t message_descriptors_max = 253;  // the kernel's SCM_MAX_FD

// Like sendmsg, repeated when a signal interrupts it, and without SIGPIPE. The descriptors stay open here; without any,
// it is an ordinary message.
[[nodiscard]] inline ssize_t send_with_descriptors(int socket, std::span<const iovec> from,
                                                   std::span<const int> descriptors, int flags) noexcept {
  OFP_ASSERT(descriptors.size() <= message_descriptors_max);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * message_descriptors_max)> control;
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(from.data());
  message.msg_iovlen = from.size();
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    std::memset(control.data(), 0, message.msg_controllen);
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, flags | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

}  // namespace offpath
