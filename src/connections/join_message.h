// The message with which a process joins its program at the agent: its number, and the two sockets that wake and notify
// it.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstring>

#include "wire/areas/tcp_area.h"

namespace offpath::channel {

struct JoinMessage {
  JoinMessage(const wire::TcpJoin& who, const std::array<int, 2>& sockets) noexcept : join(who) {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof sockets);
    std::memcpy(CMSG_DATA(rights), sockets.data(), sizeof sockets);
  }
  JoinMessage(const JoinMessage&) = delete;
  JoinMessage& operator=(const JoinMessage&) = delete;

  wire::TcpJoin join;
  iovec part{&join, sizeof join};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(std::array<int, 2>))> control{};
  msghdr header{};  // for sendmsg()
};

}  // namespace offpath::channel
