#include "plugin/output_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/bytes.h"
#include "base/memory_file.h"

namespace offpath::plugin {

namespace {

constexpr int seals_required = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

}  // namespace

Result<OutputMemory> OutputMemory::make(std::uint64_t bytes) {
  OutputMemory memory;
  OFP_ASSIGN(memory.fd_, memory_file("offpath-output"));
  memory.bytes_ = bytes;
  const std::uint64_t room = align_up(bytes == 0 ? 1 : bytes, page_bytes);
  if (ftruncate(memory.fd_.get(), static_cast<off_t>(room)) != 0)
    return fail_errno(errno, fmt::format("ftruncate of an output to {} bytes", room));
  void* reserved = mmap(nullptr, room + page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return fail_errno(errno, fmt::format("mmap of an output of {} bytes", room));
  memory.data_ = reserved;
  memory.mapped_ = room + page_bytes;
  if (mmap(reserved, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory.fd_.get(), 0) == MAP_FAILED)
    return fail_errno(errno, fmt::format("mmap of an output of {} bytes", room));
  return memory;
}

OutputMemory::OutputMemory(OutputMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_),
      mapped_(other.mapped_) {}

void OutputMemory::unmap() noexcept {
  if (data_ != nullptr) munmap(data_, mapped_);
  data_ = nullptr;
}

Result<Fd> OutputMemory::seal() {
  unmap();
  if (ftruncate(fd_.get(), static_cast<off_t>(bytes_)) != 0)
    return fail_errno(errno, fmt::format("ftruncate of an output to {} bytes", bytes_));
  OFP_TRY(add_seals(fd_.get(), seals_required, "an output"));
  return std::move(fd_);
}

Status check_output(int fd, std::uint64_t bytes, std::string_view what) {
  OFP_TRY(check_seals(fd, seals_required, Error::protocol, what));
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY) return fail(Error::protocol, "{}: its memory cannot be read", what);
  struct stat status{};
  if (fstat(fd, &status) != 0) return fail_errno(errno, "fstat");
  if (static_cast<std::uint64_t>(status.st_size) != bytes)
    return fail(Error::protocol, "{}: its memory has {} bytes, but {} were announced", what, status.st_size, bytes);
  return {};
}

}  // namespace offpath::plugin
