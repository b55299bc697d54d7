// What all calls of this library use.
#pragma once

#include <sys/time.h>

#include <optional>

#include "sockets/program.h"

// A call that programs get instead of the C library's.
#define OFP_CALL extern "C" __attribute__((visibility("default")))

namespace offpath::sockets {

[[nodiscard]] int errno_of(wire::TcpError error) noexcept;
// Sets errno and returns -1: how a call ends.
int failed(int code) noexcept;
// Whether a call on this socket must not block.
[[nodiscard]] bool returns_at_once(const Socket& socket, int flags) noexcept;
// Waits until the socket has one of `events`. Returns 0 or an errno: EINTR, or EAGAIN after `limit`. As in the kernel
// (signal(7)), a handler with SA_RESTART does not interrupt a wait that has no limit. `seen`: the socket counts as
// readable only with more unread bytes than these.
[[nodiscard]] int wait_for(Socket& socket, short events, const timeval& limit, std::uint64_t seen = 0);
// The errno of a failed connection, returned once; afterwards `otherwise`.
[[nodiscard]] int take_error(Socket& socket, int otherwise);

}  // namespace offpath::sockets
