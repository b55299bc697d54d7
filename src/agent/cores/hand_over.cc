#include "agent/cores/hand_over.h"

#include <sys/socket.h>

#include <cerrno>
#include <vector>

#include "base/received_fds.h"
#include "base/sent_fds.h"

namespace offpath::agent {

Result<HandOverPair> make_hand_over() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return fail_errno(errno, "socketpair");
  return HandOverPair{Fd(ends[0]), Fd(ends[1])};
}

Result<bool> hand_over(int giving, int connection) {
  char mark = 'c';
  const iovec piece{&mark, sizeof mark};
  if (send_with_descriptors(giving, {&piece, 1}, {&connection, 1}, MSG_DONTWAIT) == sizeof mark) return true;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ETOOMANYREFS || errno == ENOBUFS || errno == ENOMEM)
    return false;
  if (errno == EPIPE || errno == ECONNRESET) return fail(Error::peer_lost, "the core has ended");
  return fail_errno(errno, "handing a connection over");
}

Result<Fd> take_over(int taking) {
  char mark = 0;
  const iovec piece{&mark, sizeof mark};
  std::vector<Fd> descriptors;
  int said = 0;
  for (;;) {
    const ssize_t got =
        receive_with_descriptors(taking, {&piece, 1}, MSG_DONTWAIT | MSG_CMSG_CLOEXEC, nullptr, descriptors, said);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Fd();
    if (got < 0 && errno != ECONNRESET) return fail_errno(errno, "taking a connection over");
    if (got <= 0) return fail(Error::peer_lost, "the process that accepts connections has ended");
    // Without room for another descriptor the kernel has closed it: the program connects again.
    if (!descriptors.empty()) return std::move(descriptors.front());
  }
}

}  // namespace offpath::agent
