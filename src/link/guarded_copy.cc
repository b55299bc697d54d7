#include "link/guarded_copy.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "link/local/sealed_memory.h"

namespace offpath::link {

Result<GuardedCopy> GuardedCopy::create() {
  OFP_ASSIGN(SegmentMemory memory, allocate_sealed(bytes_max));
  return GuardedCopy(std::move(memory));
}

Result<Bytes> GuardedCopy::copy(const std::byte* from, std::size_t length) {
  for (;;) {
    const ssize_t got = pwrite(memory_.fd(), from, std::min(length, bytes_max), 0);
    if (got > 0) return Bytes(memory_.data(), static_cast<std::size_t>(got));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EFAULT) return fail(Error::unreadable, "no memory is mapped there");
    return fail_errno(errno, "pwrite");
  }
}

std::uint64_t GuardedCopy::readable_bytes(const std::byte* from, std::uint64_t length) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  for (std::uint64_t at = 0; at < length;) {
    if (pwrite(memory_.fd(), from + at, 1, 0) != 1) return at;
    at += page - (reinterpret_cast<std::uint64_t>(from) + at) % page;
  }
  return length;
}

}  // namespace offpath::link
