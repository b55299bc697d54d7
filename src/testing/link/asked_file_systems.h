// Which file systems a test's code has asked: fstatfs and fstat in place of the C library's, so that a test finds out
// without a file system that never answers. For one translation unit of a test program.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "base/fd.h"

namespace offpath {

inline std::vector<int> asked_descriptors;

// Descriptors of files other than memory, whose file systems may belong to another process.
inline std::vector<Fd> descriptors_of_no_memory() {
  std::vector<Fd> made;
  for (const char* const path : {"/proc/self/stat", "/dev/zero", "/proc/self/exe", "/"})
    made.emplace_back(::open(path, O_RDONLY | O_CLOEXEC));
  made.emplace_back(::open("/proc/self/exe", O_PATH | O_CLOEXEC));
  made.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) == 0)
    for (const int end : ends) made.emplace_back(end);
  return made;
}

}  // namespace offpath

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wredundant-decls"
extern "C" int fstatfs(int fd, struct statfs* result) noexcept {
  offpath::asked_descriptors.push_back(fd);
  return static_cast<int>(::syscall(SYS_fstatfs, fd, result));
}

extern "C" int fstat(int fd, struct stat* result) noexcept {
  offpath::asked_descriptors.push_back(fd);
  return ::fstatat(fd, "", result, AT_EMPTY_PATH);
}
#pragma GCC diagnostic pop
