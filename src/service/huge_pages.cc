#include "service/huge_pages.h"

#include <sys/mman.h>

#include <cerrno>

namespace offpath::service {

namespace {

#ifndef MADV_COLLAPSE
constexpr int MADV_COLLAPSE = 25;
#endif

}  // namespace

// A stretch that is longer by a huge page is reserved, the file is mapped at the first boundary in it, and the rest is
// returned.
Result<std::byte*> map_for_huge_pages(int fd, std::uint64_t bytes) {
  if (bytes < huge_page_bytes) {
    void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) return fail_errno(errno, "mmap of a buffer");
    return static_cast<std::byte*>(data);
  }
  const std::uint64_t reserved = bytes + huge_page_bytes;
  void* const place = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return fail_errno(errno, "mmap of a buffer");
  auto* const begin = static_cast<std::byte*>(place);
  const auto address = reinterpret_cast<std::uintptr_t>(place);
  const std::uint64_t before = align_up(address, huge_page_bytes) - address;
  if (mmap(begin + before, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    const int error = errno;
    munmap(begin, reserved);
    return fail_errno(error, "mmap of a buffer");
  }
  if (before > 0) munmap(begin, before);
  if (before < huge_page_bytes) munmap(begin + before + bytes, huge_page_bytes - before);
  return begin + before;
}

// One call for all blocks, as each call waits for all processors once.
void HugePages::fill(MutableBytes memory) noexcept {
  const std::uint64_t whole = memory.size() / huge_page_bytes * huge_page_bytes;
  if (whole == 0) return;
  const std::uint64_t call = calls_.fetch_add(1, std::memory_order_relaxed);
  if (call < next_call_.load(std::memory_order_relaxed)) return;
  // The kernel moves no block that has no memory at all.
  for (std::uint64_t at = 0; at < whole; at += huge_page_bytes) memory[at] = std::byte{0};
  if (madvise(memory.data(), whole, MADV_COLLAPSE) == 0) {
    filled_bytes_.fetch_add(whole, std::memory_order_relaxed);
  } else {
    refusals_.fetch_add(1, std::memory_order_relaxed);
    next_call_.store(call + 1 + pause, std::memory_order_relaxed);
  }
}

}  // namespace offpath::service
