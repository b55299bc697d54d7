// Addresses in the program's memory, which its calls name: kernel_terms.h has what they say.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "sockets/calls.h"
#include "sockets/kernel_terms.h"

namespace offpath::sockets {

[[nodiscard]] inline std::optional<channel::SocketArea::Endpoint> read_address(int family, const sockaddr* address,
                                                                               socklen_t length) {
  if (is_bad(address, length)) return std::nullopt;
  return endpoint_of(family, Bytes(reinterpret_cast<const std::byte*>(address), length));
}

// Writes as much as fits, and sets `*length` to the length of the whole address. Returns 0, or -1 with errno.
[[nodiscard]] inline int write_address(const channel::SocketArea::Endpoint& endpoint, int family, sockaddr* to,
                                       socklen_t* length) {
  if (is_bad(length, sizeof *length)) return failed(EFAULT);
  if (static_cast<int>(*length) < 0) return failed(EINVAL);
  const KernelAddress address = kernel_address(endpoint, family);
  const std::size_t written = std::min(*length, address.length);
  if (is_bad(to, written)) return failed(EFAULT);
  std::memcpy(to, &address.storage, written);
  *length = address.length;
  return 0;
}

}  // namespace offpath::sockets
