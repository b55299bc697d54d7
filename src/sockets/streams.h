// FILE streams on offloaded sockets.
#pragma once

#include <cstdio>

namespace offpath::sockets {

// As fdopen(); null: errno tells.
[[nodiscard]] std::FILE* stream_of(int fd, const char* mode) noexcept;
// In a program that was executed with a socket for its input, output or errors.
void take_standard_streams() noexcept;

}  // namespace offpath::sockets
