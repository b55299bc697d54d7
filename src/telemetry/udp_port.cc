#include "telemetry/udp_port.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

namespace offpath::exchange {

Result<UdpPort> UdpPort::connect(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size())
    return fail(Error::invalid, "'{}' is not HOST:PORT", address);
  const bool brackets = address.front() == '[' && address[colon - 1] == ']';
  const std::string host = brackets ? address.substr(1, colon - 2) : address.substr(0, colon),
                    port = address.substr(colon + 1);
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_DGRAM;
  wanted.ai_flags = AI_NUMERICSERV;
  addrinfo* answer = nullptr;
  if (const int code = getaddrinfo(host.c_str(), port.c_str(), &wanted, &answer); code != 0)
    return fail(Error::not_found, "sampler '{}': {}", address, gai_strerror(code));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(answer, freeaddrinfo);
  Fd fd(::socket(found->ai_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "socket");
  if (::connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0) return fail_errno(errno, "connect of a UDP socket");
  return UdpPort(std::move(fd));
}

void UdpPort::send(Bytes datagram) noexcept {
  (void)::send(fd_.get(), datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

std::optional<Bytes> UdpPort::receive(MutableBytes buffer) noexcept {
  // A datagram longer than the buffer is not a sampler's; truncated, it fails the check of its tag.
  for (int attempts = 0; attempts < 8; ++attempts) {
    const ssize_t length = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (length >= 0) return Bytes(buffer).first(static_cast<std::size_t>(length));
    if (errno == EAGAIN || errno == EWOULDBLOCK) break;
  }
  return std::nullopt;
}

}  // namespace offpath::exchange
