// IPv4 addresses as the socket calls have them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "connections/socket_area.h"

namespace offpath::sockets {

// nullopt: not an IPv4 address.
[[nodiscard]] inline std::optional<channel::SocketArea::Endpoint> read_address(const sockaddr* address,
                                                                               socklen_t length) {
  sockaddr_in in{};
  if (address == nullptr || length < sizeof in) return std::nullopt;
  std::memcpy(&in, address, sizeof in);
  if (in.sin_family != AF_INET) return std::nullopt;
  return channel::SocketArea::Endpoint{ntohl(in.sin_addr.s_addr), ntohs(in.sin_port)};
}

// Writes as much as fits; sets the length to the whole address's.
inline void write_address(channel::SocketArea::Endpoint endpoint, sockaddr* to, socklen_t* length) {
  if (to == nullptr || length == nullptr) return;
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(endpoint.address);
  in.sin_port = htons(endpoint.port);
  std::memcpy(to, &in, std::min<std::size_t>(*length, sizeof in));
  *length = sizeof in;
}

}  // namespace offpath::sockets
