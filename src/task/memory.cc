#include "task/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/memory_file.h"

namespace offpath::task {

Result<TargetPtr> TargetMemory::make(std::uint64_t number, std::uint64_t bytes) {
  TargetPtr made(new TargetMemory());
  made->number_ = number;
  made->capacity_ = service::BufferCache::class_bytes(bytes);
  OFP_ASSIGN(made->fd_, memory_file("offpath-target"));
  if (ftruncate(made->fd(), static_cast<off_t>(made->capacity_)) != 0)
    return fail_errno(errno, fmt::format("ftruncate of room for an output of {} bytes", bytes));
  OFP_TRY(add_seals(made->fd(), F_SEAL_SHRINK | F_SEAL_GROW, "room for an output"));
  void* data = mmap(nullptr, made->capacity_, PROT_READ, MAP_SHARED, made->fd(), 0);
  if (data == MAP_FAILED) return fail_errno(errno, fmt::format("mmap of room for an output of {} bytes", bytes));
  made->data_ = static_cast<const std::byte*>(data);
  return made;
}

TargetMemory::~TargetMemory() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), capacity_);
}

}  // namespace offpath::task
