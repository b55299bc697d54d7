#include "base/memory_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include <cerrno>

#include "base/files/file_bytes.h"

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

Status add_seals(int fd, int seals, std::string_view what) {
  if (fcntl(fd, F_ADD_SEALS, seals | F_SEAL_SEAL) != 0) return fail_errno(errno, fmt::format("sealing {}", what));
  return {};
}

Result<Fd> sealed_copy(const char* name, Bytes bytes) {
  OFP_ASSIGN(Fd fd, memory_file(name));
  OFP_TRY(write_all(fd.get(), bytes, 0));
  OFP_TRY(add_seals(fd.get(), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE, name));
  return fd;
}

Result<int> check_seals(int fd, int required, Error code, std::string_view what) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) return fail(code, "{}: the descriptor cannot be sealed, a memfd is needed", what);
  struct statfs system{};
  if (fstatfs(fd, &system) != 0) return fail_errno(errno, "fstatfs");
  // Huge pages, for example: touching a missing one raises SIGBUS.
  if (system.f_type != TMPFS_MAGIC)
    return fail(code, "{}: the descriptor is not an ordinary memfd (file system {:#x}, expected {:#x})", what,
                static_cast<unsigned long>(system.f_type), static_cast<unsigned long>(TMPFS_MAGIC));
  if ((seals & required) != required)
    return fail(code, "{}: the memfd has the seals {}, it needs {}", what, seal_names(seals), seal_names(required));
  return seals;
}

std::string seal_names(int seals) {
  static constexpr struct {
    int seal;
    const char* name;
  } table[] = {{F_SEAL_SHRINK, "SHRINK"},
               {F_SEAL_GROW, "GROW"},
               {F_SEAL_SEAL, "SEAL"},
               {F_SEAL_WRITE, "WRITE"},
               {F_SEAL_FUTURE_WRITE, "FUTURE_WRITE"}};
  std::string names;
  for (const auto& [seal, name] : table) {
    if ((seals & seal) == 0) continue;
    if (!names.empty()) names += ", ";
    names += name;
  }
  return names.empty() ? "none" : names;
}

}  // namespace offpath
