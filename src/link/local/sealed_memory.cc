#include "link/local/sealed_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <string>

#include "base/memory_file.h"
#include "wire/region.h"

namespace offpath::link {

namespace {

constexpr int seals_required = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr int seals_refused = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;

std::string names_of(int seals) {
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

Result<SegmentMemory> map_shared(Fd fd, int descriptor, std::uint64_t length,
                                 std::shared_ptr<ReceivedFds::User> user = nullptr) {
  void* data = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) return fail_errno(errno, fmt::format("mmap of {} bytes", length));
  return SegmentMemory(static_cast<std::byte*>(data), length, std::move(fd), std::move(user));
}

}  // namespace

Result<SegmentMemory> allocate_sealed(std::uint64_t length) {
  if (length == 0 || length > wire::region_bytes_max) return fail(Error::invalid, "a segment of {} bytes", length);
  OFP_ASSIGN(Fd fd, memory_file("offpath"));
  if (ftruncate(fd.get(), static_cast<off_t>(length)) != 0)
    return fail_errno(errno, fmt::format("ftruncate of a memfd to {} bytes", length));
  if (fcntl(fd.get(), F_ADD_SEALS, seals_required) != 0) return fail_errno(errno, "fcntl(F_ADD_SEALS)");
  const int descriptor = fd.get();
  return map_shared(std::move(fd), descriptor, length);
}

Result<SegmentMemory> map_sealed(int fd, std::uint64_t length, std::string_view what,
                                 std::shared_ptr<ReceivedFds::User> user) {
  // Seals first: they prove that the file is memory. fstatfs and fstat would ask the file system, and a FUSE file
  // system or a lost server would block the caller.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) return fail(Error::denied, "{}: the descriptor cannot be sealed, a memfd is needed", what);
  struct statfs system{};
  if (fstatfs(fd, &system) != 0) return fail_errno(errno, "fstatfs");
  if (system.f_type != TMPFS_MAGIC)
    return fail(Error::denied, "{}: the descriptor is not an ordinary memfd (file system {:#x}, expected {:#x})", what,
                static_cast<unsigned long>(system.f_type), static_cast<unsigned long>(TMPFS_MAGIC));
  if ((seals & seals_required) != seals_required)
    return fail(Error::denied, "{}: the memfd has the seals {}, it needs {}", what, names_of(seals),
                names_of(seals_required));
  if ((seals & seals_refused) != 0)
    return fail(Error::denied, "{}: the memfd has the seals {}, so the agent could not write to it", what,
                names_of(seals));
  struct stat status{};
  if (fstat(fd, &status) != 0) return fail_errno(errno, "fstat");
  if (static_cast<std::uint64_t>(status.st_size) != length)
    return fail(Error::protocol, "{}: the memfd has {} bytes, {} were announced", what, status.st_size, length);
  if (user) OFP_TRY(user->take_mapping());
  auto mapped = map_shared(Fd(), fd, length, user);
  if (!mapped && user) user->return_mapping();
  return mapped;
}

}  // namespace offpath::link
