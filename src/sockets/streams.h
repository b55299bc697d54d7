// FILE streams on offloaded sockets.
#pragma once

#include <cstdio>

namespace offpath::sockets {

// Like fdopen(). Null: see errno.
[[nodiscard]] std::FILE* stream_of(int fd, const char* mode) noexcept;
// For an executed program whose standard input, output or error is a socket.
void take_standard_streams() noexcept;

}  // namespace offpath::sockets
