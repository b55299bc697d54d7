// Bytes of a compromised agent, to the host's end over TCP: the link may end, but must not touch memory that was not
// announced. (Memory beside announced memory is unmapped, so that touching it would show.)
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "link/stream/stream_host_link.h"

using namespace offpath;
using namespace offpath::link;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  int fds[2];
  OFP_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
  const Fd agent(fds[0]);
  auto memory = allocate_shared(4096);
  OFP_ASSERT(memory);
  auto host = StreamHostLink::create(ControlSocket(Fd(fds[1]), ControlSocket::Kind::network), std::move(*memory), {});
  OFP_ASSERT(host);
  static const std::byte range[64] = {};
  OFP_ASSERT((*host)->announce_range(1, 1, range, sizeof range));
  (void)!send(agent.get(), data, size, MSG_NOSIGNAL);
  shutdown(agent.get(), SHUT_WR);
  // Until the host's thread has read everything and answered.
  char answers[4096];
  timeval patience{1, 0};
  fcntl(agent.get(), F_SETFL, 0);
  setsockopt(agent.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  while (recv(agent.get(), answers, sizeof answers, 0) > 0) {
  }
  (*host)->close();
  return 0;
}
