// What the calls of this library have in common.
#pragma once

#include <sys/time.h>

#include <optional>

#include "sockets/program.h"

// A call that programs find before the C library's.
#define OFP_CALL extern "C" __attribute__((visibility("default")))

namespace offpath::sockets {

[[nodiscard]] int errno_of(wire::TcpError error) noexcept;
// -1 with errno: for the end of a call.
int failed(int code) noexcept;
// That a call at this descriptor may not wait.
[[nodiscard]] bool returns_at_once(const Socket& socket, int flags) noexcept;
// Until the socket has one of `events`. An errno: EINTR, or EAGAIN after `limit`. As in the kernel (signal(7)), a
// handler with SA_RESTART does not interrupt a wait that has no limit. To read beyond `seen` bytes that lie there is to
// wait for more.
[[nodiscard]] int wait_for(Socket& socket, short events, const timeval& limit, std::uint64_t seen = 0);
// The errno of a connection on which nothing more can be done, told once; then `otherwise`.
[[nodiscard]] int take_error(Socket& socket, int otherwise);

}  // namespace offpath::sockets
