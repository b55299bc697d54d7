// FILE streams on offloaded sockets. The C library reads and writes streams by internal calls that cannot be replaced,
// so a stream on a socket is a custom one that uses ours. This includes the standard streams of an executed program
// whose input or output is a socket.
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sockets/calls.h"
#include "sockets/kernel.h"
#include "sockets/streams.h"

namespace offpath::sockets {

namespace {

[[nodiscard]] int descriptor_of(void* cookie) noexcept {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(cookie));
}

// The number of bytes written; 0 means an error, as fopencookie(3) says.
ssize_t write_all(void* cookie, const char* from, std::size_t length) {
  std::size_t written = 0;
  while (written < length) {
    const ssize_t more = ::write(descriptor_of(cookie), from + written, length - written);
    if (more <= 0) break;
    written += static_cast<std::size_t>(more);
  }
  return static_cast<ssize_t>(written);
}

}  // namespace

std::FILE* stream_of(int fd, const char* mode) noexcept {
  cookie_io_functions_t calls{};
  calls.read = [](void* cookie, char* to, std::size_t length) { return ::read(descriptor_of(cookie), to, length); };
  calls.write = write_all;
  calls.close = [](void* cookie) { return ::close(descriptor_of(cookie)); };
  std::FILE* const stream = ::fopencookie(reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)), mode, calls);
  if (stream != nullptr) stream->_fileno = fd;  // for fileno(); the stream itself only uses its cookie
  return stream;
}

void take_standard_streams() noexcept {
  const auto take = [](int fd, const char* mode, std::FILE*& stream, int buffering) {
    if (!descriptors().find(fd)) return;
    std::FILE* const made = stream_of(fd, mode);
    if (made == nullptr) return;
    ::setvbuf(made, nullptr, buffering, BUFSIZ);
    stream = made;
  };
  take(STDIN_FILENO, "r", stdin, _IOFBF);
  take(STDOUT_FILENO, "w", stdout, _IOFBF);
  take(STDERR_FILENO, "w", stderr, _IONBF);
}

}  // namespace offpath::sockets

using namespace offpath::sockets;

OFP_CALL std::FILE* fdopen(int fd, const char* mode) noexcept {
  static auto* const call = kernel::next<std::FILE*(int, const char*)>("fdopen");
  return descriptors().find(fd) ? stream_of(fd, mode) : call(fd, mode);
}
