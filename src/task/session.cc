#include "task/session.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

namespace offpath::task {

Result<MappedOutput> MappedOutput::map(int fd, std::uint64_t bytes) {
  if (bytes == 0) return MappedOutput(nullptr, 0);
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
  if (data == MAP_FAILED) return fail_errno(errno, fmt::format("mmap of an output of {} bytes", bytes));
  return MappedOutput(static_cast<std::byte*>(data), bytes);
}

MappedOutput::MappedOutput(MappedOutput&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

MappedOutput::~MappedOutput() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace offpath::task
