// All bytes of a buffer written to a place in a file, or read from one, in as many system calls as that takes.
//
// Read this first in src/base/files, then directory_entries.h.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/bytes.h"
#include "base/status.h"

namespace offpath {

inline constexpr std::size_t file_call_bytes_max = 1u << 30;  // the kernel transfers less than 2 GiB in one call

[[nodiscard]] inline Status write_all(int fd, Bytes bytes, std::uint64_t at) {
  while (!bytes.empty()) {
    const ssize_t wrote = pwrite(fd, bytes.data(), std::min(bytes.size(), file_call_bytes_max), static_cast<off_t>(at));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return fail_errno(wrote < 0 ? errno : ENOSPC, "write");
    at += static_cast<std::uint64_t>(wrote);
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
  return {};
}

// Error::protocol: the file ends before all bytes were read.
[[nodiscard]] inline Status read_all(int fd, MutableBytes to, std::uint64_t at) {
  while (!to.empty()) {
    const ssize_t got = pread(fd, to.data(), std::min(to.size(), file_call_bytes_max), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, "read");
    if (got == 0) return fail(Error::protocol, "it ends at byte {}", at);
    at += static_cast<std::uint64_t>(got);
    to = to.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

}  // namespace offpath
