// The common part of all calls of this library.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "sockets/kernel_terms.h"
#include "sockets/program.h"

// A call that programs get instead of the C library's.
#define OFP_CALL extern "C" __attribute__((visibility("default")))

namespace offpath::sockets {

// Sets errno and returns -1: how a call ends.
int failed(int code) noexcept;
// Whether an address cannot belong to the program's memory: it is null or in the kernel's half. Other bad addresses end
// the program, where the kernel's calls return EFAULT.
[[nodiscard]] inline bool is_kernels(const void* at, std::size_t length) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  return length > 0 && (begin + length < begin || static_cast<std::intptr_t>(begin + length) < 0);
}
[[nodiscard]] inline bool is_bad(const void* at, std::size_t length) noexcept {
  constexpr std::uintptr_t first_page = 4096;
  return is_kernels(at, length) || (length > 0 && reinterpret_cast<std::uintptr_t>(at) < first_page);
}
// Whether a call on this socket must not block.
[[nodiscard]] bool returns_at_once(const Socket& socket, int flags) noexcept;
// Waits until the socket has one of `events`. Returns 0 or an errno: EINTR, or EAGAIN after `limit`. As in the kernel
// (signal(7)), a handler with SA_RESTART does not interrupt a wait that has no limit. `seen`: the socket counts as
// readable only with more unread bytes than these.
[[nodiscard]] int wait_for(Socket& socket, short events, const timeval& limit, std::uint64_t seen = 0);
// The events that epoll reports of a socket.
[[nodiscard]] std::uint32_t events_of(const Socket& socket, const SocketArea::Look& look) noexcept;
// poll of one descriptor, if that is an offloaded socket and has a word on which the thread can sleep: how it ended.
[[nodiscard]] std::optional<int> poll_one(pollfd& watched, TimeNs wait_ns);
// The errno of a failed connection, returned once; afterwards `otherwise`.
[[nodiscard]] int take_error(Socket& socket, int otherwise);

// Addresses in the program's memory, which its calls name: kernel_terms.h reads them.
[[nodiscard]] inline std::optional<channel::SocketArea::Endpoint> read_address(int family, const sockaddr* address,
                                                                               socklen_t length) {
  if (is_bad(address, length) || length > sizeof(sockaddr_storage)) return std::nullopt;
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
