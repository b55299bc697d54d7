#include "base/memory_file.h"

#include <sys/mman.h>

#include <cerrno>

namespace offpath {

namespace {

#ifndef MFD_NOEXEC_SEAL
constexpr unsigned MFD_NOEXEC_SEAL = 8;
#endif

}  // namespace

Result<Fd> memory_file(const char* name) {
  Fd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
  if (!fd && errno == EINVAL) fd = Fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return fail_errno(errno, "memfd_create");
  return fd;
}

}  // namespace offpath
