// The kernel's end of a connection, by ordinary blocking sockets: sends a stream of bytes derived from their positions,
// and checks the other's stream.
#pragma once

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "testing/tcp/network.h"

namespace offpath::kernel_test {

struct Exchanged {
  std::uint64_t received = 0, wrong = 0;
  bool whole = false;  // everything was sent, and the end was seen
};

inline sockaddr_storage address_of(const tcp::Endpoint& endpoint) {
  sockaddr_storage address{};
  if (endpoint.address.is_v4()) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(endpoint.port);
    v4.sin_addr.s_addr = htonl(endpoint.address.v4());
  } else {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(endpoint.port);
    std::memcpy(&v6.sin6_addr, endpoint.address.bytes.data(), endpoint.address.bytes.size());
  }
  return address;
}

inline Fd tcp_socket() {
  Fd fd(::socket(tcp::tests_ipv6() ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{60, 0};
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

inline bool send_all(int fd, std::uint64_t stream, std::uint64_t bytes) {
  std::vector<std::byte> chunk(65'536);
  for (std::uint64_t at = 0; at < bytes;) {
    const std::size_t size = std::min<std::uint64_t>(chunk.size(), bytes - at);
    for (std::size_t i = 0; i < size; ++i) chunk[i] = tcp::stream_byte(stream, at + i);
    for (std::size_t done = 0; done < size;) {
      const ssize_t sent = ::send(fd, chunk.data() + done, size - done, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      done += static_cast<std::size_t>(sent);
    }
    at += size;
  }
  return true;
}

// Of one connection: both directions at once, then its end.
inline Exchanged exchange(int fd, std::uint64_t send_stream, std::uint64_t sends, std::uint64_t receive_stream) {
  Exchanged result;
  bool sent = false;
  std::thread writer([&] {
    sent = send_all(fd, send_stream, sends);
    ::shutdown(fd, SHUT_WR);
  });
  std::vector<std::byte> chunk(65'536);
  ssize_t got = 0;
  while ((got = ::recv(fd, chunk.data(), chunk.size(), 0)) > 0)
    for (ssize_t i = 0; i < got; ++i)
      result.wrong += chunk[static_cast<std::size_t>(i)] != tcp::stream_byte(receive_stream, result.received++);
  writer.join();
  // Lost data is sent again after the other side's FIN, until that side has everything too.
  int unacknowledged = 1;
  for (int i = 0; i < 30'000 && unacknowledged > 0; ++i) {
    if (::ioctl(fd, SIOCOUTQ, &unacknowledged) != 0) break;
    if (unacknowledged > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  result.whole = sent && got == 0;
  return result;
}

}  // namespace offpath::kernel_test
