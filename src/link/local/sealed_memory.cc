#include "link/local/sealed_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/memory_file.h"
#include "wire/region.h"

namespace offpath::link {

namespace {

constexpr int seals_required = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr int seals_refused = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;

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
  OFP_TRY(add_seals(fd.get(), seals_required, "a segment"));
  const int descriptor = fd.get();
  return map_shared(std::move(fd), descriptor, length);
}

Result<SegmentMemory> map_sealed(int fd, std::uint64_t length, std::string_view what,
                                 std::shared_ptr<ReceivedFds::User> user) {
  OFP_ASSIGN(const int seals, check_seals(fd, seals_required, Error::denied, what));
  if ((seals & seals_refused) != 0)
    return fail(Error::denied, "{}: the memfd has the seals {}, so the agent could not write to it", what,
                seal_names(seals));
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
